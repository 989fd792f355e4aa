/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From files of other shapes to a trace: the csv reader against the rules of RFC 4180, with every way to cut its input; Attr in
 * both forms; and rows that must come out of a replay as they went in.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbols/elf_cache.h"
#include "unit.h"

#include "engine/input.h"
#include "engine/pass.h"
#include "import/csv_reader.h"
#include "import/row_owners.h"
#include "import/snapshot_rounds.h"
#include "replay/replay.h"

/* Records as text: fields between brackets, records on lines, faults by number. */
static void read_all(const char *data, size_t bytes, char *out, size_t room)
{
	struct csv_reader reader;
	int r, fd = unit_memory_file(data, bytes);
	size_t i, length = 0;

	out[0] = '\0';
	csv_init(&reader, fd);
	while ((r = csv_next(&reader)) > 0) {
		length += (size_t)snprintf(out + length, room - length, "%llu",
					   (unsigned long long)reader.record_line);
		if (reader.fault != CSV_WHOLE)
			length += (size_t)snprintf(out + length, room - length, "!%d",
						   (int)reader.fault);
		for (i = 0; i < reader.field_count; i++) {
			assert_int_equal(strlen(reader.fields[i].text), reader.fields[i].length);
			length += (size_t)snprintf(out + length, room - length, "[%s]",
						   reader.fields[i].text);
		}
		length += (size_t)snprintf(out + length, room - length, ";");
	}
	assert_int_equal(r, 0);
	csv_fini(&reader);
	(void)close(fd);
}

static void an_owner_is_a_class_and_labels(void **state)
{
	static const struct {
		const char *text, *class, *label;
		bool is_driver;
		uint32_t module;
	} cases[] = {
		{"PTA", "", "", false, MODULE_UNKNOWN},
		{"PTA@ops@aten", "ops@aten", "", false, MODULE_UNKNOWN},
		{"PTA@ops@aten@mine@inner", "ops@aten", "mine@inner", false, MODULE_UNKNOWN},
		{"PTA@model@weight", "model@weight", "", false, MODULE_UNKNOWN},
		{"HOST@model@weight@mine", "model@weight", "mine", false, MODULE_UNKNOWN},
		{"PTA@model@buffer@layers.0.table", "model@buffer@layers.0.table", "", false,
		 MODULE_UNKNOWN},
		{"PTA@model@temporary@forward@mine", "model@temporary@forward", "mine", false,
		 MODULE_UNKNOWN},
		{"PTA@mine", "", "mine", false, MODULE_UNKNOWN},
		{"PTA@models@weight", "", "models@weight", false, MODULE_UNKNOWN},
		{"PTA@weight", "model@weight", "", false, MODULE_UNKNOWN},
		{"CANN@SLOG@optimizer_state", "", "optimizer_state", true, 0},
		{"PTA@ops", "ops@aten", "", false, MODULE_UNKNOWN},
		{"PTA@ops@aten::mul", "ops@aten::mul", "", false, MODULE_UNKNOWN},
		{"CANN@HCCL", "", "", true, 3},
		{"CANN@HCCL@mine", "", "mine", true, 3},
		{"CUDA@mine", "", "mine", true, MODULE_UNKNOWN},
		{"CANN@NOBODY@mine", "", "mine", true, MODULE_UNKNOWN},
		{"PTA@", "", "", false, MODULE_UNKNOWN},
		{"PTA@model", "model", "", false, MODULE_UNKNOWN},
		{"", "", "", false, MODULE_UNKNOWN},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct row_owner owner = row_owner_of(cases[i].text, cases[i].is_driver);

		assert_int_equal(owner.module, cases[i].module);
		assert_int_equal(owner.class_length, strlen(cases[i].class));
		assert_int_equal(owner.label_length, strlen(cases[i].label));
		if (owner.class_length > 0)
			assert_memory_equal(owner.class, cases[i].class, owner.class_length);
		if (owner.label_length > 0)
			assert_memory_equal(owner.label, cases[i].label, owner.label_length);
	}
}

static void csv_is_read_as_rfc_4180_has_it(void **state)
{
	static const struct {
		const char *text, *records;
	} cases[] = {
		{"", ""},
		{"a", "1[a];"},
		{"a,b\n", "1[a][b];"},
		{"a,b\r\nc,d\r\n", "1[a][b];2[c][d];"},
		{"\xef\xbb\xbf"
		 "a,b\n",
		 "1[a][b];"},
		{"a,,\n,,\n", "1[a][][];2[][][];"},
		{"a\n\n\r\nb", "1[a];4[b];"},
		{"\"a,b\",\"c\nd\"\ne\n", "1[a,b][c\nd];3[e];"},
		{"\"a \"\"quoted\"\" b\",\"\"\n", "1[a \"quoted\" b][];"},
		{"\"\"\"\"\"\"\n", "1[\"\"];"},
		{"\"a\"\r\n\"b\"", "1[a];2[b];"},
		{"x\n\"a\"\r", "1[x];2[a];"},
		{"\"a\",\"b\r\nc\"\r\n", "1[a][b\r\nc];"},
		{"a\rb,c\n", "1[a\rb][c];"},
		/* What no writer of csv writes is given up line by line. */
		{"a\"b\nc\n", "1!1;2[c];"},
		{"\"a\"b\nc\n", "1!1;2[c];"},
		{"\"a\"\rb\nc\n", "1!1;2[c];"},
		{"a,\"b\nc,d\n", "1!4;2[c][d];"},
		{"a,\"b", "1!4;"},
	};
	char out[400];
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		read_all(cases[i].text, strlen(cases[i].text), out, sizeof(out));
		if (strcmp(out, cases[i].records) != 0)
			fail_msg("case %zu: %s, not %s", i, out, cases[i].records);
	}
	read_all("a\0b\nc\n", 6, out, sizeof(out));
	assert_string_equal(out, "1!3;2[c];");
}

static void a_record_may_span_what_is_read_at_once(void **state)
{
	const size_t bytes = 900000;
	char *text = malloc(bytes + 64);
	struct csv_reader reader;
	size_t quoted, at = 0;
	int fd;
	(void)state;

	assert_non_null(text);
	/* A long field with a doubled quote at each place where a piece might end. */
	at += (size_t)sprintf(text, "x,\"");
	for (quoted = 0; at < bytes; quoted++) {
		memcpy(text + at, "\"\"\n", 3);
		at += 3;
	}
	at += (size_t)sprintf(text + at, "\",y\nlast\n");
	fd = unit_memory_file(text, at);
	csv_init(&reader, fd);
	assert_int_equal(csv_next(&reader), 1);
	assert_int_equal(reader.fault, CSV_WHOLE);
	assert_int_equal(reader.field_count, 3);
	assert_int_equal(reader.fields[1].length, 2 * quoted);
	assert_string_equal(reader.fields[2].text, "y");
	assert_int_equal(csv_next(&reader), 1);
	assert_int_equal(reader.record_line, quoted + 2);
	assert_string_equal(reader.fields[0].text, "last");
	assert_int_equal(csv_next(&reader), 0);
	csv_fini(&reader);
	(void)close(fd);
	free(text);
}

static void endless_records_take_bounded_memory(void **state)
{
	struct csv_reader reader;
	char line[8192];
	int i, fd = memfd_create("csv", MFD_CLOEXEC);
	(void)state;

	memset(line, 'x', sizeof(line));
	for (i = 0; i < 4096; i++)
		assert_int_equal(write(fd, line, sizeof(line)), sizeof(line));
	assert_int_equal(write(fd, "\na,b\n", 5), 5);
	(void)lseek(fd, 0, SEEK_SET);
	csv_init(&reader, fd);
	assert_int_equal(csv_next(&reader), 1);
	assert_int_equal(reader.fault, CSV_TOO_LONG);
	assert_true(reader.room < 2 * CSV_RECORD_MAX);
	assert_int_equal(csv_next(&reader), 1);
	assert_int_equal(reader.field_count, 2);
	csv_fini(&reader);
	(void)close(fd);
}

static void attributes_are_found_by_name_in_both_forms(void **state)
{
	static const struct {
		const char *text;
		bool holds;
		enum attr_key key;
		const char *value; /* NULL: none */
	} cases[] = {
		{"", true, ATTR_size, NULL},
		{"{}", true, ATTR_size, NULL},
		{"{size:512}", true, ATTR_size, "512"},
		{"{allocation_id:1,size:5,used:7,total:9}", true, ATTR_total, "9"},
		{"{total:9,used:7,size:5}", true, ATTR_size, "5"},
		{"{dtype:torch.float32,shape:torch.Size([2, 3])}", true, ATTR_shape,
		 "torch.Size([2, 3])"},
		{"{size:1,inefficient_type:early_allocation,late_deallocation,page_type:huge}",
		 true, ATTR_inefficient_type, "early_allocation,late_deallocation"},
		{"{size:1,inefficient_type:a,b,page_type:huge}", true, ATTR_page_type, "huge"},
		{"{owner:PTA@ops@aten::mul,size:3}", true, ATTR_size, "3"},
		{"{addr:1,owner:,MID:3}", true, ATTR_owner, ""},
		{"{addr:1,owner:,MID:3}", true, ATTR_MID, "3"},
		{"{new_key:4,size:3}", true, ATTR_size, "3"},
		{"{\"size\":\"512\",\"shape\":\"[2,3,]\"}", true, ATTR_shape, "[2,3,]"},
		{"{ \"size\" : 512 , \"x\" : null }", true, ATTR_size, "512"},
		{"{\"shape\":\"\\\"\\\\\\n\\u4e2d\"}", true, ATTR_shape, "\"\\\n\xe4\xb8\xad"},
		{"size:1", false, ATTR_size, NULL},
		{"{size}", false, ATTR_size, NULL},
		{"{\"size\":\"1}", false, ATTR_size, NULL},
		{"{\"size\":}", false, ATTR_size, NULL},
		{"{\"size\"}", false, ATTR_size, NULL},
		{"{\"size\":\"1\",}", false, ATTR_size, NULL},
		{"{\"size\":\"\\u12\"}", false, ATTR_size, NULL},
		{"{\"size\":\"\\x\"}", false, ATTR_size, NULL},
		{"{", false, ATTR_size, NULL},
	};
	struct attr_values attr = {0};
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		if (attr_parse(&attr, cases[i].text, strlen(cases[i].text)) != cases[i].holds)
			fail_msg("%s", cases[i].text);
		if (!cases[i].holds)
			continue;
		if (cases[i].value == NULL)
			assert_null(attr.value[cases[i].key]);
		else
			assert_string_equal(attr.value[cases[i].key], cases[i].value);
	}
	attr_fini(&attr);
}

/* ---- whole files ---- */

#define HEADER "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr\n"

struct file {
	char path[64];
	struct input input;
	struct mscope_error err;
	int r;
};

static void open_text(struct file *file, const char *text)
{
	int fd;

	*file = (struct file){.path = "/tmp/test_import.XXXXXX"};
	fd = mkstemp(file->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	(void)close(fd);
	file->r = input_open(&file->input, file->path, NULL, NULL, &file->err);
	(void)unlink(file->path);
}

static void assert_opened(struct file *file, const char *text)
{
	open_text(file, text);
	if (file->r != 0)
		fail_msg("%s", file->err.message);
}

/* All events by number, and the replay at the end. Each is asked for the tid and time that `expect` has, when it has. */
struct seen {
	uint32_t type;
	uint32_t tid;
	uint64_t wall_ns;
};

static void replay_all(struct file *file, struct replay **replay, struct elf_cache *elves,
		       struct seen *out, size_t *count)
{
	struct trace_event event;
	size_t room = *count;

	assert_int_equal(
		replay_new(
			&(struct replay_setup){.run = file->input.run, .elves = elves, .root = ""},
			replay),
		0);
	assert_int_equal(run_poll(file->input.run, 0, true), 0);
	*count = 0;
	while (run_next(file->input.run, &event)) {
		assert_int_equal(replay_event(*replay, &event), 0);
		switch (event.type) {
		case EVENT_context_def:
		case EVENT_text_def:
		case EVENT_thread:
			continue;
		default:
			break;
		}
		assert_true(*count < room);
		out[(*count)++] = (struct seen){event.type, event.tid,
						run_wall_ns(file->input.run, event.time_ns)};
	}
	assert_int_equal(run_damage(file->input.run)->skipped_bytes, 0);
	assert_int_equal(run_damage(file->input.run)->late_events, 0);
	assert_int_equal(replay_totals(*replay)->oddities.contexts_unknown, 0);
}

static void rows_become_events_in_the_order_of_time(void **state)
{
	static const char text[] = HEADER
		/* As the original writes them: a block's rows when it ends. */
		"4,MALLOC,PTA,N/"
		"A,1700000000000000400,77,78,1,0x0000000000001000,\"{allocation_id:1,"
		"addr:0x1000,size:512,total:4096,used:512}\"\n"
		"9,FREE,PTA,N/A,1700000009000000000,77,79,1,0x0000000000001000,\"{allocation_id:1,"
		"addr:0x1000,size:512,total:4096,used:0}\"\n"
		"0,SYSTEM,acl init,N/A,1700000000000000001,77,77,N/A,N/A,\n"
		"1,OP_LAUNCH,ATEN_START,aten.mul,1700000000000000100,77,78,1,N/A,\n"
		"5,ACCESS,WRITE,aten.mul,1700000000000000500,77,78,1,0x0000000000001000,\""
		"{allocation_id:1,addr:0x1000,size:24,type:PTA,dtype:f,shape:torch.Size([2, "
		"3])}\"\n"
		"6,OP_LAUNCH,ATEN_END,aten.mul,1700000000000000600,77,78,1,N/A,\n"
		"7,KERNEL_LAUNCH,KERNEL_LAUNCH,k1,1700000000000000700,77,77,1,N/A,\"{streamId:2,"
		"taskId:9}\"\n"
		"8,KERNEL_LAUNCH,KERNEL_EXECUTE_END,k1,1700000000000000800,77,77,1,N/A,\""
		"{streamId:2,taskId:9}\"\n"
		"10,SYSTEM,STEP,1,1700000009000000001,77,77,1,N/A,\n"
		"11,MALLOC,HAL,N/A,1700000009000000002,77,77,1,8192,\"{allocation_id:2,addr:8192,"
		"size:2199023255552,page_type:huge,alloc_type:create}\"\n"
		"12,SNAPSHOT,SNAPSHOT,s,1700000009000000003,77,77,1,N/A,\"{reserved:1}\"\n"
		"13,OOM_DETAIL,OOM_TRIGGER,OOM_Trigger,1700000009000000004,77,77,1,N/"
		"A,\"{func:f}\"\n";
	static const struct seen expected[] = {
		{EVENT_system, 77, 1},
		{EVENT_operation, 78, 100},
		{EVENT_pool_total, 78, 400},
		{EVENT_block_alloc, 78, 400},
		{EVENT_access, 78, 500},
		{EVENT_operation, 78, 600},
		{EVENT_kernel_launch, 77, 700},
		{EVENT_device_clock, 77, 800},
		{EVENT_kernel_execute, 77, 800},
		{EVENT_block_free, 79, 9000000000},
		{EVENT_step, 77, 9000000001},
		{EVENT_block_alloc_wide, 77, 9000000002},
		{EVENT_snapshot, 77, 9000000003},
	};
	struct elf_cache elves = {0};
	struct seen seen[32];
	struct replay *replay;
	const struct block *block;
	struct file file;
	size_t count = MSCOPE_COUNT(seen), i;
	(void)state;

	assert_opened(&file, text);
	assert_int_equal(file.input.import.reading.rows, 12);
	assert_int_equal(file.input.import.reading.bad_rows, 0);
	assert_int_equal(file.input.import.unknown, 1);
	assert_int_equal(run_header(file.input.run)->pid, 77);
	replay_all(&file, &replay, &elves, seen, &count);
	assert_int_equal(count, MSCOPE_COUNT(expected));
	for (i = 0; i < count; i++) {
		assert_int_equal(seen[i].type, expected[i].type);
		assert_int_equal(seen[i].tid, expected[i].tid);
		assert_int_equal(seen[i].wall_ns, 1700000000000000000 + expected[i].wall_ns);
	}
	i = 0;
	block = replay_next_block(replay, &i);
	assert_non_null(block);
	assert_int_equal(block->address, 8192);
	assert_int_equal(block->size_bytes, 2199023255552);
	assert_int_equal(replay_context(replay, block->context)->page, PAGE_HUGE);
	assert_int_equal(replay_context(replay, block->context)->kind, BLOCK_CREATE);
	assert_null(replay_next_block(replay, &i));
	replay_free(replay);
	elf_cache_fini(&elves);
	input_close(&file.input);
}

static void a_block_that_is_only_freed_lived_before(void **state)
{
	struct elf_cache elves = {0};
	struct seen seen[16];
	const struct usage *usage;
	struct replay *replay;
	struct file file;
	size_t count = MSCOPE_COUNT(seen), usages;
	(void)state;

	assert_opened(&file, HEADER "1,MARK,x,N/A,5,7,7,0,N/A,\n"
				    "2,MALLOC,PTA,N/A,10,7,7,0,0x10,{size:100}\n"
				    "3,FREE,PTA,N/A,20,7,7,0,0x20,{size:1000}\n"
				    "4,FREE,PTA,N/A,30,7,7,0,0x10,{size:100}\n"
				    "5,MALLOC,PTA,N/A,40,7,7,0,0x30,{size:7}\n"
				    "6,FREE,PTA,N/A,50,7,7,0,0x30,\"{size:7,shadow:true}\"\n"
				    "7,SYSTEM,ACL_FINI,N/A,60,7,7,N/A,N/A,\n");
	replay_all(&file, &replay, &elves, seen, &count);
	/* The free that was made up at the end is not one. */
	usage = replay_usages(replay, &usages);
	assert_int_equal(usages, 1);
	assert_int_equal(usage->live_bytes, 7);
	assert_int_equal(usage->peak_bytes, 1100);
	assert_int_equal(replay_totals(replay)->oddities.frees_unknown, 0);
	/* MALLOC, FREE, MALLOC, ACL_FINI: of the older block there is nothing to show. */
	assert_int_equal(replay_totals(replay)->rows, 4);
	replay_free(replay);
	elf_cache_fini(&elves);
	input_close(&file.input);
}

static void rows_of_one_moment_keep_their_order(void **state)
{
	struct elf_cache elves = {0};
	struct seen seen[16];
	const struct usage *usage;
	struct replay *replay;
	struct file file;
	size_t count = MSCOPE_COUNT(seen), usages;
	(void)state;

	/* The thread that was seen first frees last, and the address goes from hand to hand. */
	assert_opened(&file, HEADER "0,MALLOC,PTA,N/A,10,7,1,0,0x10,{size:1}\n"
				    "1,FREE,PTA,N/A,10,7,2,0,0x10,{size:1}\n"
				    "2,MALLOC,PTA,N/A,10,7,1,0,0x10,{size:2}\n"
				    "3,FREE,PTA,N/A,10,7,2,0,0x10,{size:2}\n"
				    "4,MALLOC,PTA,N/A,10,7,1,0,0x10,{size:3}\n");
	replay_all(&file, &replay, &elves, seen, &count);
	assert_int_equal(replay_totals(replay)->oddities.allocs_over +
				 replay_totals(replay)->oddities.frees_unknown,
			 0);
	usage = replay_usages(replay, &usages);
	assert_int_equal(usages, 1);
	assert_int_equal(usage->live_bytes, 3);
	assert_int_equal(usage->allocations, 3);
	replay_free(replay);
	elf_cache_fini(&elves);
	input_close(&file.input);
}

static void ranges_pair_whatever_their_numbers(void **state)
{
	static const char *const ends[] = {"Range end from id 2", "Range end from id 1",
					   "Range end from id 900", "Range end from id 17"};
	int counted;
	(void)state;

	for (counted = 0; counted < 2; counted++) {
		struct elf_cache elves = {0};
		struct seen seen[16];
		struct replay *replay;
		struct file file;
		size_t count = MSCOPE_COUNT(seen);
		char text[600];

		(void)snprintf(text, sizeof(text),
			       HEADER "0,MSTX,Range_start,\"\"\"step start\"\"\",10,7,7,0,N/A,\n"
				      "1,MSTX,Range_start,inner,11,7,7,0,N/A,\n"
				      "2,MSTX,Range_end,%s,12,7,7,0,N/A,\n"
				      "3,MALLOC,PTA,N/A,13,7,7,0,0x10,{size:1}\n"
				      "4,MSTX,Range_end,%s,14,7,7,0,N/A,\n",
			       ends[counted * 2], ends[counted * 2 + 1]);
		assert_opened(&file, text);
		replay_all(&file, &replay, &elves, seen, &count);
		assert_int_equal(replay_steps(replay), 1);
		assert_int_equal(replay_open_step(replay, 0), 0);
		replay_free(replay);
		elf_cache_fini(&elves);
		input_close(&file.input);
	}
}

static void columns_may_stand_in_any_order_and_some_may_be_missing(void **state)
{
	struct file file;
	(void)state;

	assert_opened(&file, "Attr,New Column,Device Id,Timestamp(ns),Name,Event Type,Event\r\n"
			     "\"{size:5}\",x,host,10,N/A,HOST,MALLOC\r\n");
	assert_int_equal(file.input.import.reading.rows, 1);
	assert_int_equal(file.input.import.reading.bad_rows, 0);
	input_close(&file.input);
	open_text(&file, "Attr,Device Id,Timestamp(ns),Name,Event\n{size:5},0,10,N/A,MALLOC\n");
	assert_int_equal(file.r, MSCOPE_E_FOREIGN);
	assert_non_null(strstr(file.err.message, "no column Event Type"));
	input_close(&file.input);
}

static void rows_that_do_not_hold_are_left_out_and_named(void **state)
{
	static const char good[] = "1,MALLOC,PTA,N/A,10,7,7,0,0x10,{size:100}\n";
	static const struct {
		const char *row, *named;
	} cases[] = {
		{"2,MALLOC,PTA,N/A,x,7,7,0,0x10,{size:1}\n", "Timestamp(ns)"},
		{"2,MALLOC,PTA,N/A,99999999999999999999,7,7,0,0x10,{size:1}\n", "Timestamp(ns)"},
		{"2,MALLOC,PTA,N/A,9,7,7,4096,0x10,{size:1}\n", "Device Id"},
		{"2,MALLOC,PTA,N/A,9,7,7,gpu,0x10,{size:1}\n", "Device Id"},
		{"2,MALLOC,PTA,N/A,9,7,7,0,zz,{size:1}\n", "Ptr"},
		{"2,MALLOC,PTA,N/A,9,7,7,0,0x10,{size:x}\n", "size"},
		{"2,MALLOC,PTA,N/A,9,7,7,0,0x10,{used:1}\n", "size"},
		{"2,MALLOC,PTA,N/A,9,7,7,0,0x10,size:1\n", "Attr"},
		{"2,MALLOC,WHAT,N/A,9,7,7,0,0x10,{size:1}\n", "pool"},
		{"x,MALLOC,PTA,N/A,9,7,7,0,0x10,{size:1}\n", "ID"},
		{"2,MALLOC,PTA,N/A,9,p,7,0,0x10,{size:1}\n", "Process Id"},
		{"2,SYSTEM,STEP,one,9,7,7,0,N/A,\n", "step"},
		{"2,MALLOC,PTA,N/A,9,7\n", "columns"},
		{"2,MALLOC,\"PTA\"x,N/A,9,7,7,0,0x10,{size:1}\n", "quote"},
		{"2,MALLOC,PTA,N/A,9,7", "ends"},
		{"2,MALLOC,PTA,\"N/A,9,7", "ends"},
	};
	char text[1000];
	struct file file;
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		(void)snprintf(text, sizeof(text), HEADER "%s%s", good, cases[i].row);
		assert_opened(&file, text);
		assert_int_equal(file.input.import.reading.rows, 1);
		assert_int_equal(file.input.import.reading.bad_rows, 1);
		assert_true(import_is_damaged(&file.input.import));
		if (strstr(file.input.import.reading.first_bad, cases[i].named) == NULL ||
		    strstr(file.input.import.reading.first_bad, "line 3: ") == NULL)
			fail_msg("%s: %s", cases[i].row, file.input.import.reading.first_bad);
		input_close(&file.input);
	}
}

static void rows_of_two_processes_are_refused(void **state)
{
	struct file file;
	(void)state;

	open_text(&file, HEADER "1,MALLOC,PTA,N/A,10,7,7,0,0x10,{size:100}\n"
				"1,MALLOC,PTA,N/A,10,8,8,0,0x10,{size:100}\n");
	assert_int_equal(file.r, MSCOPE_E_LIMIT);
	assert_non_null(strstr(file.err.message, "several processes (7, 8"));
	input_close(&file.input);
}

/* A comparison takes them: the same address is a block of each. */
static void rows_of_two_processes_are_told_apart(void **state)
{
	static const char text[] = HEADER "1,MALLOC,PTA,N/A,10,7,7,0,0x10,{size:100}\n"
					  "1,MALLOC,PTA,N/A,11,8,7,0,0x10,{size:200}\n"
					  "2,FREE,PTA,N/A,12,7,7,0,0x10,{size:100}\n";
	char path[] = "/tmp/mscope-import-XXXXXX";
	struct elf_cache elves = {0};
	struct pass_setup setup = {.elves = &elves};
	const struct usage *usages;
	struct mscope_error err = {0};
	struct input input;
	struct pass pass;
	size_t count;
	int fd = mkstemp(path);
	(void)state;

	assert_true(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
	(void)close(fd);
	assert_int_equal(input_open_processes(&input, path, NULL, NULL, &err), 0);
	setup.run = input.run;
	assert_int_equal(pass_open(&pass, &setup, &err), 0);
	assert_int_equal(pass_all(&pass, &err), 0);
	usages = replay_usages(pass.replay, &count);
	assert_int_equal(count, 1);
	assert_int_equal(usages[0].live_bytes, 200);
	assert_int_equal(usages[0].peak_bytes, 300);
	assert_int_equal(replay_totals(pass.replay)->oddities.allocs_over, 0);
	pass_close(&pass);
	input_close(&input);
	elf_cache_fini(&elves);
	(void)unlink(path);
}

/* Nothing of a temporary trace is left where temporary files are. */
static void nothing_is_left_behind(void **state)
{
	char directory[] = "/tmp/test_import.dir.XXXXXX";
	struct file file;
	(void)state;

	assert_non_null(mkdtemp(directory));
	(void)setenv("TMPDIR", directory, 1);
	assert_opened(&file, HEADER "1,MALLOC,PTA,N/A,10,7,7,0,0x10,{size:100}\n");
	(void)unsetenv("TMPDIR");
	assert_int_equal(rmdir(directory), 0);
	input_close(&file.input);
}

/* ---- rounds of a history ---- */

enum { WEIGHTS = 1, FORWARD, SAVED, BACKWARD, GRADIENT, STATE, SQUARES, UPDATE, SITES = UPDATE };

struct history {
	struct round_event events[8192];
	size_t count;
};

static void add(struct history *h, uint32_t site, uint64_t size)
{
	h->events[h->count] = (struct round_event){site, size, h->count};
	h->count++;
}

/* A step of a training; the first one makes the state of the optimizer. */
static void add_step(struct history *h, unsigned int layers, bool first)
{
	unsigned int i;

	for (i = 0; i < layers; i++) {
		add(h, FORWARD, 5);
		add(h, SAVED, 20);
		add(h, 0, 5);
	}
	for (i = 0; i < layers; i++) {
		add(h, BACKWARD, 7);
		add(h, GRADIENT, 10);
		add(h, 0, 20);
		add(h, 0, 7);
	}
	for (i = 0; i < layers; i++) {
		if (first) {
			add(h, STATE, 10);
			add(h, SQUARES, 10);
		}
		add(h, UPDATE, 10);
		add(h, 0, 10);
	}
	for (i = 0; i < layers; i++)
		add(h, 0, 10);
}

static int64_t rounds(const struct history *h, size_t *out_ends)
{
	size_t *ends = calloc(h->count + 1, sizeof(*ends)), i;
	int64_t found = rounds_find(h->events, h->count, SITES, ends, out_ends);

	for (i = 1; i < *out_ends; i++)
		assert_true(ends[i - 1] < ends[i] && ends[i] < h->count);
	free(ends);
	return found;
}

static void steps_of_a_training_are_rounds(void **state)
{
	static struct history h;
	unsigned int steps, i;
	size_t ends;

	(void)state;
	for (steps = 16; steps <= 40; steps += 7) {
		h.count = 0;
		for (i = 0; i < 12; i++)
			add(&h, WEIGHTS, 10);
		for (i = 0; i < steps; i++)
			add_step(&h, 12, i == 0);
		assert_int_equal(rounds(&h, &ends), steps);
		/* Nothing follows the last. */
		assert_int_equal(ends, steps - 1);
		add(&h, FORWARD, 5);
		assert_int_equal(rounds(&h, &ends), steps);
		assert_int_equal(ends, steps);
	}
}

static void loops_over_layers_and_parameters_are_not_rounds(void **state)
{
	static struct history h;
	unsigned int i, cut;
	size_t ends;

	(void)state;
	/* One step, which may end anywhere. */
	for (i = 0; i < 24; i++)
		add(&h, WEIGHTS, 10);
	add_step(&h, 24, true);
	for (cut = (unsigned int)h.count; cut > 0; cut--) {
		h.count = cut;
		assert_true(rounds(&h, &ends) <= 1);
	}
	/* The optimizer's first step alone, or a loop that only allocates. */
	h.count = 0;
	for (i = 0; i < 100; i++) {
		add(&h, STATE, 10);
		add(&h, SQUARES, 10);
	}
	assert_int_equal(rounds(&h, &ends), 0);
	/* One call site. */
	h.count = 0;
	for (i = 0; i < 100; i++) {
		add(&h, FORWARD, 10);
		add(&h, 0, 10);
	}
	assert_int_equal(rounds(&h, &ends), 0);
	h.count = 0;
	assert_int_equal(rounds(&h, &ends), 0);
	assert_int_equal(ends, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv_is_read_as_rfc_4180_has_it),
		cmocka_unit_test(a_record_may_span_what_is_read_at_once),
		cmocka_unit_test(endless_records_take_bounded_memory),
		cmocka_unit_test(attributes_are_found_by_name_in_both_forms),
		cmocka_unit_test(rows_become_events_in_the_order_of_time),
		cmocka_unit_test(a_block_that_is_only_freed_lived_before),
		cmocka_unit_test(rows_of_one_moment_keep_their_order),
		cmocka_unit_test(ranges_pair_whatever_their_numbers),
		cmocka_unit_test(columns_may_stand_in_any_order_and_some_may_be_missing),
		cmocka_unit_test(rows_that_do_not_hold_are_left_out_and_named),
		cmocka_unit_test(rows_of_two_processes_are_refused),
		cmocka_unit_test(rows_of_two_processes_are_told_apart),
		cmocka_unit_test(nothing_is_left_behind),
		cmocka_unit_test(an_owner_is_a_class_and_labels),
		cmocka_unit_test(steps_of_a_training_are_rounds),
		cmocka_unit_test(loops_over_layers_and_parameters_are_not_rounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
