/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line, fed from tables. What every option must refuse (a value that is empty, endless, not UTF-8, full of control
 * characters) is tried on each entry of options.def, so that a new entry is tested before anyone writes a case for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

#include "options/options.h"
#include "options/options_table.h"

#define WIDE_COMMA "\xef\xbc\x8c"
#define KAI	   "\xe5\xbc\x80" /* a character that has a byte in common with the full-width comma */

/* The allocation that fails, counted from 1; 0 for none. */
static unsigned int failing_allocation, allocations;

static bool allocation_fails(void)
{
	return ++allocations == failing_allocation;
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
	return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
	return allocation_fails() ? NULL : __real_realloc(old, bytes);
}

char *__real_strndup(const char *text, size_t length);
char *__wrap_strndup(const char *text, size_t length);
char *__wrap_strndup(const char *text, size_t length)
{
	return allocation_fails() ? NULL : __real_strndup(text, length);
}

/* Parses a line of words, "msmemscope" put before them. `words` ends with NULL. */
static int parse_words(const char *const *words, struct options *o, struct mscope_error *err)
{
	static char name[] = "msmemscope";
	char *argv[24] = {name};
	int argc = 1;

	while (words[argc - 1] != NULL) {
		assert_true((size_t)argc + 1 < MSCOPE_COUNT(argv));
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
		argc++;
	}
	*err = (struct mscope_error){0};
	return options_parse(argc, argv, o, err);
}

#define PARSE(o, err, ...) parse_words((const char *const[]){__VA_ARGS__, NULL}, o, err)

/* Whether a message can be printed as it is: not empty, not cut, one line, no control character, UTF-8. */
static void assert_printable(const char *message)
{
	size_t length = strlen(message), i;

	assert_in_range(length, 1, sizeof(((struct mscope_error *)0)->message) - 2);
	for (i = 0; i < length; i++)
		assert_true((unsigned char)message[i] >= 0x20 && message[i] != 0x7f);
	assert_null(strstr(message, "\xff"));
}

static void assert_has(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" lacks \"%s\"", text, part);
}

/*
 * Refused as a mistake of the user, before the program, in both forms; the message has `parts`. After the program it is the
 * program's, and a line says why.
 */
static void assert_refused(const char *option, const char *value, const char *part1,
			   const char *part2)
{
	struct mscope_error err;
	struct options o = {.argc = 77};
	char joined[6000];
	int form;

	(void)snprintf(joined, sizeof(joined), "%s=%s", option, value);
	for (form = 0; form < 2; form++) {
		int r = form == 0 ? PARSE(&o, &err, joined, "prog")
				  : PARSE(&o, &err, option, value, "prog");

		if (r != MSCOPE_E_USAGE)
			fail_msg("%s is not refused", joined);
		assert_int_equal(err.code, MSCOPE_E_USAGE);
		assert_printable(err.message);
		assert_has(err.message, option);
		assert_has(err.message, part1);
		assert_has(err.message, part2);
		assert_int_equal(o.argc, 77);
	}
	if (strcmp(option, "--watch") == 0) {
		/* Programs have no such option: after the program it is refused, too. */
		assert_int_equal(PARSE(&o, &err, "prog", joined), MSCOPE_E_USAGE);
		assert_has(err.message, part1);
		assert_int_equal(PARSE(&o, &err, "--", "prog", joined), 0);
		assert_int_equal(o.argc, 2);
		options_fini(&o);
		return;
	}
	assert_int_equal(PARSE(&o, &err, "prog", joined), 0);
	assert_int_equal(o.argc, 2);
	assert_string_equal(o.argv[1], joined);
	if (o.notices.length > 0) {
		assert_has(strbuf_str(&o.notices), "passed to the program: ");
		assert_has(strbuf_str(&o.notices), part1);
	}
	assert_int_equal(o.given.words[0] | o.given.words[1], 0);
	options_fini(&o);
}

struct value_case {
	const char *option, *value;
	const char *named; /* what the message must name; NULL for a good value */
};

static const struct value_case good_values[] = {
	{"--output-path", "out", NULL},
	{"--output-path", "/a b/\xe4\xb8\xad\xe6\x96\x87/caf\xc3\xa9?=,~", NULL},
	{"--output", "a" WIDE_COMMA KAI, NULL},
	{"--trace-dir", "/var/tmp", NULL},
	{"--format", "csv", NULL},
	{"--format", "db", NULL},
	{"--data-format", "csv", NULL},
	{"--max-disk", "1%", NULL},
	{"--max-disk", "100%", NULL},
	{"--max-disk", "1048576", NULL},
	{"--max-disk", "1M", NULL},
	{"--max-disk", "2048k", NULL},
	{"--max-disk", "9223372036854775807", NULL},
	{"--max-disk", "8388607T", NULL},
	{"--max-size", "400000", NULL},
	{"--max-size", "1000000000", NULL},
	{"--max-size", "5M", NULL},
	{"--fail-on", "leak", NULL},
	{"--fail-on",
	 "leak,suspect" WIDE_COMMA "oom,peak:1G,growth:512k/step,oom-in:500steps,leak:1M/step",
	 NULL},
	{"--fail-on", "oom-in:1step", NULL},
	{"--on-forecast", "touch full", NULL},
	{"--summary-json", "out.json", NULL},
	{"--top", "1", NULL},
	{"--port", "0", NULL},
	{"--port", "65535", NULL},
	{"--prometheus", "0", NULL},
	{"--prometheus", "9400", NULL},
	{"--mark", "test", NULL},
	{"--mark", "a mark, " KAI, NULL},
	{"--start-index", "0", NULL},
	{"--start-index", "7", NULL},
	{"--store", "sqlite:a b.db", NULL},
	{"--to", "postgresql://host/db", NULL},
	{"--max-trace", "1%", NULL},
	{"--max-trace", "2048k", NULL},
	{"--min-free", "100%", NULL},
	{"--min-free", "8388607T", NULL},
	{"--duration", "1", NULL},
	{"--duration", "31536000", NULL},
	{"--store-every", "1", NULL},
	{"--store-every", "86400", NULL},
	{"--run", "nightly 17, " KAI, NULL},
	{"--job", "j", NULL},
	{"--commit", "1a2b3c4", NULL},
	{"--tag", "a,b", NULL},
	{"--store-wait", "0", NULL},
	{"--place", "train.py:41", NULL},
	{"--pool", "PTA", NULL},
	{"--budget", "budget.txt", NULL},
	{"--set", "max_split_size_mb:64,expandable_segments:True", NULL},
	{"--set", "", NULL},
	{"--limit", "8G", NULL},
	{"--bandwidth", "24G", NULL},
	{"--card", "80G", NULL},
	{"--torch", "2.11", NULL},
	{"--batch", "12,16,24", NULL},
	{"--batch-of", "4,8", NULL},
	{"--sort", "blocks", NULL},
	{"--call-stack", "c", NULL},
	{"--call-stack", "python", NULL},
	{"--call-stack", "c:0,python:1000", NULL},
	{"--call-stack", "c:20" WIDE_COMMA "python:10", NULL},
	{"--call-stack", ",c,," WIDE_COMMA, NULL},
	{"--call-stack", "none", NULL},
	{"--call-stack", "", NULL},
	{"--device", "npu", NULL},
	{"--device", "npu:0", NULL},
	{"--device", "npu:2" WIDE_COMMA "npu:31,cpu", NULL},
	{"--device", "cpu,", NULL},
	{"--device", "gpu", NULL},
	{"--device", "gpu:3,gpu:0,npu:1,cpu", NULL},
	{"--steps", "1", NULL},
	{"--steps", "1,2,3,4,5,6,4294967295", NULL},
	{"--steps", WIDE_COMMA "10" WIDE_COMMA "2,", NULL},
	{"--events", "alloc", NULL},
	{"--events", "alloc" WIDE_COMMA "free,launch,access,traceback", NULL},
	{"--events", "none", NULL},
	{"--events", "", NULL},
	{"--level", "0", NULL},
	{"--level", "1,op" WIDE_COMMA "kernel", NULL},
	{"--level", "", NULL},
	{"--analysis", "leaks", NULL},
	{"--analysis", "leaks" WIDE_COMMA "decompose,inefficient,oom:1", NULL},
	{"--analysis", "oom:1000", NULL},
	{"--analysis", "none", NULL},
	{"--analysis", "", NULL},
	{"--inefficient", "early_allocation" WIDE_COMMA "late_deallocation,temporary_idleness",
	 NULL},
	{"--inefficient", "mem_size:4294967295,idle_threshold:1", NULL},
	{"--inefficient", "", NULL},
	{"--watch", "", NULL},
	{"--watch", "op1", NULL},
	{"--watch", ",op1", NULL},
	{"--watch", "op0,op1", NULL},
	{"--watch", "op0,op1,", NULL},
	{"--watch", "op0,op1,full-content", NULL},
	{"--watch", "op1" WIDE_COMMA "full-content", NULL},
	{"--watch", "op0:0,op1", NULL},
	{"--watch", "op0:out1" WIDE_COMMA "op1", NULL},
	{"--watch", "op0:4294967295,op1", NULL},
	{"--watch", "aten::mul,aten::add:0", NULL},
	{"--watch", "token0/layer0/module0/op0,token0/layer0/module0/op1,full-content", NULL},
	{"--watch", KAI ":out1" WIDE_COMMA KAI, NULL},
	{"--collect-mode", "immediate", NULL},
	{"--collect-mode", "deferred", NULL},
	{"--whatif", "off", NULL},
	{"--whatif", "always", NULL},
	{"--auto-steps", "on", NULL},
	{"--auto-steps", "off", NULL},
	{"--input-path", "a,b", NULL},
	{"--input-path", "a" WIDE_COMMA "/b", NULL},
	{"--input", KAI "," KAI, NULL},
	{"--input", ",a b,," WIDE_COMMA " ./b ,", NULL},
	{"--log-level", "debug", NULL},
	{"--log-level", "info", NULL},
	{"--log-level", "warn", NULL},
	{"--log-level", "warning", NULL},
	{"--log-level", "error", NULL},
};

static const struct value_case bad_values[] = {
	{"--output-path", " \t ", "empty"},
	{"--output-path", "=x", "'=x'"},
	{"--output-path", "+x", "'+x'"},
	{"--output-path", " -x", "'-x'"},
	{"--output-path", "@x", "'@x'"},
	{"--output", "a\x1b[31mb", "'a\\x1b[31mb'"},
	{"--trace-dir", "@x", "'@x'"},
	{"--trace-dir",
	 "a\xc2\x9b"
	 "b",
	 "'a\\xc2\\x9bb'"},
	{"--input-path", ",", "','"},
	{"--input-path", WIDE_COMMA ",", "is not two paths"},
	{"--input-path", "a,b,c", "'a,b,c'"},
	{"--input-path", "a, ", "empty"},
	{"--input-path", "a,@x", "'@x'"},
	{"--input", "=a,b", "'=a'"},
	{"--input", "a\x1b,b", "'a\\x1b'"},
	{"--format", "sqlite", "'sqlite'"},
	{"--format", "CSV", "'CSV'"},
	{"--format", "csv,db", "'csv,db'"},
	{"--format", "csv,csv", "'csv,csv'"},
	{"--data-format", "xml", "'xml'"},
	{"--max-size", "399999", "'399999'"},
	{"--max-size", "1000000001", "'1000000001'"},
	{"--max-size", "x", "'x'"},
	{"--max-disk", "0", "'0'"},
	{"--max-disk", "1048575", "'1048575'"},
	{"--max-disk", "0%", "'0%'"},
	{"--max-disk", "101%", "'101%'"},
	{"--max-disk", "%", "'%'"},
	{"--max-disk", "G", "'G'"},
	{"--max-disk", "1.5G", "'1.5G'"},
	{"--max-disk", "10GB", "'10GB'"},
	{"--max-disk", "-5G", "'-5G'"},
	{"--max-disk", "010M", "'010M'"},
	{"--max-disk", "9223372036854775808", "'9223372036854775808'"},
	{"--max-disk", "8388608T", "'8388608T'"},
	{"--max-disk", "99999999999999999999999", "'99999999999999999999999'"},
	{"--fail-on", "leaks", "'leaks'"},
	{"--fail-on", "oom-in:500", "'oom-in:500'"},
	{"--fail-on", "oom-in:0steps", "'oom-in:0steps'"},
	{"--on-forecast", "", "the value is empty"},
	{"--fail-on", "", "the value is empty"},
	{"--fail-on", "leak,peak", "'peak'"},
	{"--fail-on", "peak:", "'peak:'"},
	{"--fail-on", "peak:0", "'peak:0'"},
	{"--fail-on", "peak:1GB", "'peak:1GB'"},
	{"--fail-on", "growth:1M", "'growth:1M'"},
	{"--fail-on", "growth:/step", "'growth:/step'"},
	{"--fail-on", "leak:1M", "'leak:1M'"},
	{"--summary-json", "@x", "'@x'"},
	{"--top", "0", "'0'"},
	{"--port", "65536", "'65536'"},
	{"--prometheus", "65536", "'65536'"},
	{"--prometheus", "/metrics", "'/metrics'"},
	{"--port", "http", "'http'"},
	{"--mark", " \t ", "is blank"},
	{"--start-index", "-1", "'-1'"},
	{"--store", " ", "is blank"},
	{"--to", " ", "is blank"},
	{"--max-trace", "1048575", "'1048575'"},
	{"--min-free", "101%", "'101%'"},
	{"--duration", "0", "'0'"},
	{"--duration", "10m", "'10m'"},
	{"--store-every", "0", "'0'"},
	{"--store-every", "30s", "'30s'"},
	{"--run", " ", "is blank"},
	{"--job", " ", "is blank"},
	{"--commit", " ", "is blank"},
	{"--tag", " ", "is blank"},
	{"--store-wait", "soon", "'soon'"},
	{"--store-wait", "86401", "'86401'"},
	{"--place", " ", "is blank"},
	{"--pool", " ", "is blank"},
	{"--budget", "@x", "'@x'"},
	{"--set", "a\x01", "'a\\x01'"},
	{"--limit", "1023K", "'1023K'"},
	{"--bandwidth", "fast", "'fast'"},
	{"--card", "x", "'x'"},
	{"--torch", " ", "is blank"},
	{"--batch", "0", "'0'"},
	{"--batch-of", "four", "'four'"},
	{"--start-index", "4294967295", "'4294967295'"},
	{"--top", "many", "'many'"},
	{"--sort", "size", "'size'"},
	{"--call-stack", "rust", "'rust'"},
	{"--call-stack", "c,rust", "'rust'"},
	{"--call-stack", "c:1001", "'c:1001'"},
	{"--call-stack", "python:4294967297", "'python:4294967297'"},
	{"--call-stack", "c:", "'c:'"},
	{"--call-stack", "c:00", "'c:00'"},
	{"--call-stack", "c:05", "'c:05'"},
	{"--call-stack", "c:-1", "'c:-1'"},
	{"--call-stack", "c:5:5", "'c:5:5'"},
	{"--call-stack", "c 5", "'c 5'"},
	{"--call-stack", ":5", "':5'"},
	{"--call-stack", "none:5", "'none:5'"},
	{"--device", "rocm", "'rocm'"},
	{"--device", "gpu:32", "'gpu:32'"},
	{"--device", "gpu:", "'gpu:'"},
	{"--device", "npu:32", "'npu:32'"},
	{"--device", "npu:-1", "'npu:-1'"},
	{"--device", "npu:01", "'npu:01'"},
	{"--device", "npu:", "'npu:'"},
	{"--device", "0", "'0'"},
	{"--device", "cpu:0", "'cpu:0'"},
	{"--device", "npu:1,npu:4294967297", "'npu:4294967297'"},
	{"--device", ",", "empty"},
	{"--steps", "0", "'0'"},
	{"--steps", "01", "'01'"},
	{"--steps", "1,2,x", "'x'"},
	{"--steps", "1.5", "'1.5'"},
	{"--steps", "-1", "'-1'"},
	{"--steps", "+1", "'+1'"},
	{"--steps", "1-3", "'1-3'"},
	{"--steps", "1 ,2", "'1 '"},
	{"--steps", "4294967296", "'4294967296'"},
	{"--steps", "99999999999999999999999", "'99999999999999999999999'"},
	{"--steps", ",,", "empty"},
	{"--events", "malloc", "'malloc'"},
	{"--events", "alloc,alloc:1", "'alloc:1'"},
	{"--events", "ALLOC", "'ALLOC'"},
	{"--level", "2", "'2'"},
	{"--level", "0,operator", "'operator'"},
	{"--level", "00", "'00'"},
	{"--analysis", "leak", "'leak'"},
	{"--analysis", "oomfoo", "'oomfoo'"},
	{"--analysis", "oom:0", "'oom:0'"},
	{"--analysis", "oom:1001", "'oom:1001'"},
	{"--analysis", "leaks:1", "'leaks:1'"},
	{"--watch", ",", "has no END"},
	{"--watch", "op0,", "'op0,' has no END"},
	{"--watch", "full-content", "'full-content' has no END"},
	{"--watch", ",full-content", "has no END"},
	{"--watch", "op0,,full-content", "has no END"},
	{"--watch", "op0,op1,full", "too many parts"},
	{"--watch", "op0,op1,op2,full-content", "too many parts"},
	{"--watch", "op0,op1,full-content,", "too many parts"},
	{"--watch", "op0:,op1", "'op0:' has no output number"},
	{"--watch", "op0:outid,op1", "'op0:outid' has no output number"},
	{"--watch", "op0:out,op1", "written as :0 or :out0"},
	{"--watch", "op0:01,op1", "'op0:01' has a bad output number"},
	{"--watch", "op0:out01,op1", "bad output number"},
	{"--watch", "op0:4294967296,op1", "bad output number"},
	{"--watch", ":0,op1", "':0' has no operator"},
	{"--watch", ":op0,op1", "':op0' has no operator"},
	{"--watch", "op1:0", "no START"},
	{"--watch", ",op1:out0,full-content", "no START"},
	{"--watch", "op0,op1\nx", "'op0,op1\\nx'"},
	{"--collect-mode", "immediate,deferred", "'immediate,deferred'"},
	{"--collect-mode", "now", "'now'"},
	{"--whatif", "yes", "'yes'"},
	{"--auto-steps", "1", "'1'"},
	{"--inefficient", "early", "'early' is not allowed"},
	{"--inefficient", "mem_size:4294967296", "bad number"},
	{"--inefficient", "idle_threshold:0", "bad number"},
	{"--inefficient", "late_deallocation:3", "takes none"},
	{"--log-level", "warnings", "'warnings'"},
	{"--log-level", "2", "'2'"},
};

/* Whether a word is one of a list that blanks separate. */
static bool is_of(const char *word, const char *list)
{
	char text[128], words[256];

	(void)snprintf(text, sizeof(text), " %s ", word);
	(void)snprintf(words, sizeof(words), " %s ", list);
	return strstr(words, text) != NULL;
}

static void good_values_are_accepted(void **state)
{
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(good_values); i++) {
		const struct value_case *c = &good_values[i];
		struct mscope_error err;
		struct options o;
		char joined[300];

		(void)snprintf(joined, sizeof(joined), "%s=%s", c->option, c->value);
		if (strncmp(c->option, "--input", 7) == 0) {
			/* Of no use to a launch, so it is the program's after one. */
			if (PARSE(&o, &err, "--compare", joined) != 0)
				fail_msg("%s: %s", joined, err.message);
			assert_non_null(o.input_path.path[0]);
			assert_non_null(o.input_path.path[1]);
			options_fini(&o);
			assert_int_equal(PARSE(&o, &err, "prog", joined, "x"), 0);
			assert_int_equal(o.argc, 3);
			options_fini(&o);
			continue;
		}
		if (is_of(c->option, "--store --to --run --job --commit --tag --store-wait")) {
			if (PARSE(&o, &err, "store", "add", joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (is_of(c->option, "--set --limit --card --torch --batch --batch-of")) {
			if (PARSE(&o, &err, "whatif", joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (strcmp(c->option, "--bandwidth") == 0) {
			if (PARSE(&o, &err, "advise", joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (is_of(c->option, "--place --pool --budget")) {
			if (PARSE(&o, &err, "fleet", "show", joined) != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (strcmp(c->option, "--mark") == 0 || strcmp(c->option, "--start-index") == 0) {
			if (PARSE(&o, &err, "analyze", "leaks", joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (strcmp(c->option, "--port") == 0 || strcmp(c->option, "--prometheus") == 0) {
			const char *verb = c->option[3] == 'o' ? "view" : "top";

			if (PARSE(&o, &err, verb, joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (is_of(c->option, "--max-size --top --sort --duration")) {
			const char *verb = c->option[2] == 'm'	 ? "report"
					   : c->option[2] == 'd' ? "attach"
								 : "info";

			if (PARSE(&o, &err, verb, joined, "x") != 0)
				fail_msg("%s: %s", joined, err.message);
			options_fini(&o);
			continue;
		}
		if (PARSE(&o, &err, joined, "prog", "x") != 0)
			fail_msg("%s: %s", joined, err.message);
		assert_int_equal(o.argc, 2);
		options_fini(&o);
		assert_int_equal(PARSE(&o, &err, c->option, c->value, "prog", "x"), 0);
		assert_int_equal(o.argc, 2);
		options_fini(&o);
		/* No option of the original: after the program it is the program's. */
		if (strcmp(c->option, "--on-forecast") == 0)
			continue;
		assert_int_equal(PARSE(&o, &err, "prog", joined, "x"), 0);
		assert_int_equal(o.argc, 2);
		assert_has(strbuf_str(&o.notices), c->option);
		options_fini(&o);
	}
}

static void bad_values_are_named_with_what_is_allowed(void **state)
{
	struct mscope_error err;
	struct options o = {0};
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(bad_values); i++)
		assert_refused(bad_values[i].option, bad_values[i].value, bad_values[i].named,
			       "; allowed: ");
	assert_refused("--format", "x", "'x'", "allowed: csv, db");
	assert_int_equal(PARSE(&o, &err, "export", "--format=svg", "x"), MSCOPE_E_USAGE);
	assert_string_equal(err.message,
			    "--format: 'svg' is not allowed; allowed: csv, db, parquet, torch, "
			    "perfetto, speedscope, pprof, collapsed, jsonl");
	assert_refused("--device", "x", "'x'", "allowed: npu[:0..31], gpu[:0..31], cpu");
	assert_refused("--steps", "x", "'x'", "allowed: whole numbers from 1 to 4294967295");
	assert_refused("--watch", ",", "','", "allowed: [START[:OUTPUT],]END[,full-content]");
	assert_refused("--collect-mode", "x", "'x'", "allowed: immediate, deferred");
	assert_refused("--call-stack", "x", "'x'", "allowed: c[:0..1000], python[:0..1000], none");
	assert_refused("--max-disk", "x", "'x'", "allowed: 1M or more");
}

static void compare_needs_two_inputs_and_no_program(void **state)
{
	static const struct {
		const char *words[5];
		const char *named; /* NULL: accepted */
	} cases[] = {
		{{"--compare"}, "--compare needs"},
		{{"--compare", "a", "b"}, "--compare needs"},
		{{"--input=a,b"}, "--input needs --compare"},
		{{"--input=a,b", "prog"}, "--input needs --compare"},
		{{"--compare", "--input=a"}, "is not two paths"},
		{{"--compare", "--input=a,b", "--steps=1,2"}, "two steps of one run"},
		{{"--compare", "--input=a", "--steps=1"}, "two steps of one run"},
		{{"--compare", "--input=a,b", "--format=db"}, "--format does not apply"},
		{{"--compare", "--input=a,b", "info", "x"}, "the verb info"},
		{{"info", "--input=a,b", "x"}, "--input needs --compare"},
		{{"--json", "prog"}, "--json is for verbs"},
		{{"--compare", "--input=a,b"}, NULL},
		{{"--compare", "-ia,b", "--json", "-q"}, NULL},
		{{"--compare", "-i", "a,b", "--level=0,1", "-oX"}, NULL},
		{{"--compare", "--input=a,b", "prog", "--level=kernel"}, NULL},
	};
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		const char *words[6] = {0};
		int r;

		memcpy(words, cases[i].words, sizeof(cases[i].words));
		r = parse_words(words, &o, &err);
		if (cases[i].named == NULL) {
			if (r != 0)
				fail_msg("case %zu: %s", i, err.message);
			assert_true(o.compare);
			assert_true(o.input_path.path[0][0] == '/' &&
				    o.input_path.path[1][0] == '/');
			assert_non_null(o.output_path);
			options_fini(&o);
		} else {
			assert_int_equal(r, MSCOPE_E_USAGE);
			assert_has(err.message, cases[i].named);
		}
	}
	/* Each path has its own limit; the last of two counts. */
	assert_int_equal(
		PARSE(&o, &err, "--compare", "--input=a,b", "--input=/c" WIDE_COMMA "/" KAI), 0);
	assert_string_equal(o.input_path.path[0], "/c");
	assert_string_equal(o.input_path.path[1], "/" KAI);
	options_fini(&o);
}

static void every_option_has_cases(void **state)
{
	const struct option_row *row = NULL;
	(void)state;

	while ((row = option_next(row)) != NULL) {
		char name[64];
		size_t i, good = 0, bad = 0;

		(void)snprintf(name, sizeof(name), "--%s", row->name);
		for (i = 0; i < MSCOPE_COUNT(good_values); i++)
			good += strcmp(good_values[i].option, name) == 0;
		for (i = 0; i < MSCOPE_COUNT(bad_values); i++)
			bad += strcmp(bad_values[i].option, name) == 0;
		if (row->kind != OPTION_KIND_flag && (good == 0 || bad == 0))
			fail_msg("no cases for %s", name);
	}
}

static void every_option_refuses_rubbish(void **state)
{
	const struct option_row *row = NULL;
	char endless[5001], name[64];
	const char *known;
	size_t k;
	(void)state;

	memset(endless, 'a', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	while ((row = option_next(row)) != NULL) {
		/* Where no verb stands, its name means another option. */
		if (row == &option_rows[OPTION_ID_events_directory])
			continue;
		for (k = 0; (known = option_name(row, k)) != NULL; k++) {
			(void)snprintf(name, sizeof(name), "--%s", known);
			if (row->kind == OPTION_KIND_flag) {
				struct mscope_error err;
				struct options o;

				(void)snprintf(name, sizeof(name), "--%s=1", known);
				assert_int_equal(PARSE(&o, &err, name, "prog"), MSCOPE_E_USAGE);
				assert_has(err.message, known);
				continue;
			}
			assert_refused(name, endless, "aaaa...' (5000 bytes)", "allowed: ");
			assert_refused(name, "a\xff\xfe", "'a\\xff\\xfe'", "allowed: ");
			assert_refused(name, "\xed\xa0\x80", "'\\xed\\xa0\\x80'", "allowed: ");
			assert_refused(name, "a\xe4\xb8", "'a\\xe4\\xb8'", "allowed: ");
			assert_refused(name, "a\x01\x7f\\", "'a\\x01\\x7f\\\\'", "allowed: ");
			if (!row->may_be_empty)
				assert_refused(name, "", "the value is empty", "allowed: ");
		}
	}
}

static void long_values_are_cut_between_characters(void **state)
{
	struct strbuf sb = {0};
	char text[200] = "x";
	int i;
	(void)state;

	for (i = 0; i < 60; i++)
		memcpy(text + 1 + i * 3, KAI, 4);
	options_quote(&sb, text);
	assert_has(strbuf_str(&sb), KAI KAI "...' (181 bytes)");
	strbuf_reset(&sb);
	options_quote(&sb, "a\nb\tc");
	assert_string_equal(strbuf_str(&sb), "'a\\nb\\tc'");
	strbuf_fini(&sb);
}

static void defaults_hold_when_nothing_is_given(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(chdir("/usr"), 0);
	assert_int_equal(PARSE(&o, &err, "prog"), 0);
	assert_int_equal(o.given.words[0] | o.given.words[1], 0);
	assert_int_equal(o.verb, VERB_NONE);
	assert_int_equal(o.word, 1);
	assert_int_equal(o.argc, 1);
	assert_string_equal(o.argv[0], "prog");
	assert_null(o.argv[1]);
	assert_string_equal(o.output_path, "/usr/memscopeDumpResults");
	assert_null(o.trace_dir);
	assert_int_equal(o.format, OPT_FORMAT_CSV);
	assert_int_equal(o.max_disk.percent, 50);
	assert_int_equal(o.max_trace.percent, 10);
	assert_int_equal(o.max_disk.bytes, 0);
	assert_int_equal(o.call_stack.mask, 0);
	assert_int_equal(o.device.mask, 1u << OPT_DEVICE_NPU | 1u << OPT_DEVICE_GPU);
	assert_int_equal(o.device.number[OPT_DEVICE_NPU], UINT32_MAX);
	assert_int_equal(o.device.number[OPT_DEVICE_GPU], UINT32_MAX);
	assert_int_equal(o.steps.count, 0);
	assert_int_equal(o.events.mask,
			 1u << OPT_EVENTS_ALLOC | 1u << OPT_EVENTS_FREE | 1u << OPT_EVENTS_LAUNCH);
	assert_int_equal(o.level.mask, 1u << OPT_LEVEL_OP);
	assert_int_equal(o.analysis.mask, 1u << OPT_ANALYSIS_LEAKS);
	assert_string_equal(o.watch.end, "");
	assert_int_equal(o.collect_mode, OPT_COLLECT_IMMEDIATE);
	assert_int_equal(o.log_level, OPT_LOG_WARN);
	assert_false(o.no_keep_trace || o.best_effort || o.verbose || o.quiet || o.json || o.help ||
		     o.version);
	assert_int_equal(o.notices.length, 0);
	options_fini(&o);
}

static void values_reach_their_fields(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--output=/r", "--trace-dir=/t", "--no-keep-trace",
			       "--best-effort", "--max-disk=3G",
			       "--call-stack=c:7" WIDE_COMMA "c:8,python",
			       "--collect-mode=deferred", "--log-level=error", "prog"),
			 0);
	assert_string_equal(o.output_path, "/r");
	assert_string_equal(o.trace_dir, "/t");
	assert_true(o.no_keep_trace && o.best_effort);
	assert_int_equal(o.max_disk.bytes, UINT64_C(3) << 30);
	assert_int_equal(o.max_disk.percent, 0);
	assert_true(option_set_has(&o.call_stack, OPT_STACK_C));
	assert_true(option_set_has(&o.call_stack, OPT_STACK_PYTHON));
	assert_int_equal(o.call_stack.number[OPT_STACK_C], 8);
	assert_int_equal(o.call_stack.number[OPT_STACK_PYTHON], 50);
	assert_int_equal(o.collect_mode, OPT_COLLECT_DEFERRED);
	assert_int_equal(o.log_level, OPT_LOG_ERROR);
	assert_true(options_given(&o, OPTION_ID_output_path));
	assert_true(options_given(&o, OPTION_ID_call_stack));
	assert_false(options_given(&o, OPTION_ID_format));
	options_fini(&o);
}

static void lists_reach_their_fields(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--device=npu:2,npu:7" WIDE_COMMA "npu:2",
			       "--steps=3,1,3,2", "--events=access", "--level=0,1",
			       "--analysis=oom,leaks", "prog"),
			 0);
	assert_int_equal(o.device.mask, 1u << OPT_DEVICE_NPU);
	assert_int_equal(o.device.number[OPT_DEVICE_NPU], 1u << 2 | 1u << 7);
	assert_int_equal(o.steps.count, 3);
	assert_int_equal(o.steps.value[0], 3);
	assert_int_equal(o.steps.value[1], 1);
	assert_int_equal(o.steps.value[2], 2);
	assert_int_equal(o.events.mask, 1u << OPT_EVENTS_ACCESS);
	assert_int_equal(o.level.mask, 1u << OPT_LEVEL_OP | 1u << OPT_LEVEL_KERNEL);
	assert_int_equal(o.analysis.mask, 1u << OPT_ANALYSIS_LEAKS | 1u << OPT_ANALYSIS_OOM);
	assert_int_equal(o.analysis.number[OPT_ANALYSIS_OOM], 10);
	options_fini(&o);
	/* All of them, whatever is named beside. */
	assert_int_equal(PARSE(&o, &err, "--device=npu:2,npu,npu:3,cpu", "prog"), 0);
	assert_int_equal(o.device.mask, 1u << OPT_DEVICE_NPU | 1u << OPT_DEVICE_CPU);
	assert_int_equal(o.device.number[OPT_DEVICE_NPU], UINT32_MAX);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--device=cuda:3,gpu:1,npu:4", "prog"), 0);
	assert_int_equal(o.device.mask, 1u << OPT_DEVICE_NPU | 1u << OPT_DEVICE_GPU);
	assert_int_equal(o.device.number[OPT_DEVICE_GPU], 1u << 3 | 1u << 1);
	assert_int_equal(o.device.number[OPT_DEVICE_NPU], 1u << 4);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--device=cuda:32", "prog"), MSCOPE_E_USAGE);
	/* A script's own, far more often than ours. */
	assert_int_equal(PARSE(&o, &err, "prog", "--device=cuda:0"), 0);
	assert_int_equal(o.argc, 2);
	assert_false(options_given(&o, OPTION_ID_device));
	assert_has(strbuf_str(&o.notices), "passed to the program: '--device=cuda:0'");
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--device=cpu", "prog"), 0);
	assert_int_equal(o.device.mask, 1u << OPT_DEVICE_CPU);
	assert_int_equal(o.device.number[OPT_DEVICE_NPU], 0);
	options_fini(&o);
}

static void steps_have_room_for_1024(void **state)
{
	struct strbuf list = {0};
	struct mscope_error err;
	struct options o;
	int i;
	(void)state;

	strbuf_add_str(&list, "--steps=");
	for (i = 1; i <= 1024; i++)
		strbuf_addf(&list, "%d,", i);
	assert_int_equal(PARSE(&o, &err, strbuf_str(&list), "prog"), 0);
	assert_int_equal(o.steps.count, 1024);
	assert_int_equal(o.steps.value[1023], 1024);
	options_fini(&o);
	strbuf_add_str(&list, "1025");
	assert_int_equal(PARSE(&o, &err, strbuf_str(&list), "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "'1025' exceeds the limit; allowed: ");
	strbuf_fini(&list);
}

static void watch_is_taken_apart(void **state)
{
	static const struct {
		const char *value, *start, *end;
		uint32_t output;
		bool full;
	} cases[] = {
		{"op1", "", "op1", OPTION_WATCH_ALL, false},
		{",op1", "", "op1", OPTION_WATCH_ALL, false},
		{"op1,full-content", "", "op1", OPTION_WATCH_ALL, true},
		{"op0,op1", "op0", "op1", OPTION_WATCH_ALL, false},
		{"op0,op1,", "op0", "op1", OPTION_WATCH_ALL, false},
		{"op0,op1" WIDE_COMMA "full-content", "op0", "op1", OPTION_WATCH_ALL, true},
		{"op0:7,op1", "op0", "op1", 7, false},
		{"op0:out0" WIDE_COMMA "op1", "op0", "op1", 0, false},
		{"aten::mul,aten::add", "aten::mul", "aten::add", OPTION_WATCH_ALL, false},
		{"aten::mul:out2,x:0", "aten::mul", "x:0", 2, false},
		{"full-content,op1", "full-content", "op1", OPTION_WATCH_ALL, false},
		{"full-content,full-content", "", "full-content", OPTION_WATCH_ALL, true},
	};
	char longest[600];
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		assert_int_equal(PARSE(&o, &err, "--watch", cases[i].value, "prog"), 0);
		assert_string_equal(o.watch.start, cases[i].start);
		assert_string_equal(o.watch.end, cases[i].end);
		assert_int_equal(o.watch.output, cases[i].output);
		assert_int_equal(o.watch.full_content, cases[i].full);
		options_fini(&o);
	}
	memset(longest, 's', 254);
	memset(longest + 254 + 4, 'e', 254);
	memcpy(longest + 254, ":12,", 4);
	longest[254 + 4 + 254] = '\0';
	assert_int_equal(PARSE(&o, &err, "--watch", longest, "prog"), 0);
	assert_int_equal(strlen(o.watch.start), 254);
	assert_int_equal(strlen(o.watch.end), 254);
	options_fini(&o);
	assert_refused("--watch", strcat(longest, "e"), "(255 bytes) is too long", "allowed: ");
}

static void old_name_has_its_own_directory(void **state)
{
	static const struct {
		const char *command, *directory;
	} cases[] = {
		{"msleaks", "/usr/leaksDumpResults"},
		{"/opt/bin/msleaks", "/usr/leaksDumpResults"},
		{"msleaks.old", "/usr/memscopeDumpResults"},
		{"/msleaks/msmemscope", "/usr/memscopeDumpResults"},
	};
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	assert_int_equal(chdir("/usr"), 0);
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		char *words[] = {(char *)(uintptr_t)cases[i].command, (char *)(uintptr_t) "prog",
				 NULL};

		assert_int_equal(options_parse(2, words, &o, &err), 0);
		assert_string_equal(o.output_path, cases[i].directory);
		options_fini(&o);
	}
}

static void last_of_two_counts(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "-o/a", "-o", "/b", "--call-stack=c",
			       "--call-stack=python:3", "prog", "--output=/c"),
			 0);
	assert_string_equal(o.output_path, "/c");
	assert_int_equal(o.call_stack.mask, 1u << OPT_STACK_PYTHON);
	assert_int_equal(o.call_stack.number[OPT_STACK_PYTHON], 3);
	options_fini(&o);
}

static void none_wins_in_a_list_and_says_so(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--call-stack=c:5,none,python", "prog"), 0);
	assert_int_equal(o.call_stack.mask, 0);
	assert_has(strbuf_str(&o.notices), "--call-stack: none ");
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--call-stack=none", "prog"), 0);
	assert_int_equal(o.notices.length, 0);
	assert_true(options_given(&o, OPTION_ID_call_stack));
	options_fini(&o);
}

static void explicit_level_beats_verbose_beats_quiet(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--log-level=info", "--verbose", "-q", "prog"), 0);
	assert_int_equal(o.log_level, OPT_LOG_INFO);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--debug", "-q", "prog"), 0);
	assert_int_equal(o.log_level, OPT_LOG_DEBUG);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--quiet", "prog"), 0);
	assert_int_equal(o.log_level, OPT_LOG_ERROR);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "info", "t", "-q"), 0);
	assert_int_equal(o.log_level, OPT_LOG_ERROR);
	options_fini(&o);
}

static void abbreviations_must_fit_one_option(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--out=/a", "--call", "c", "--verb", "--fo=csv", "prog"),
			 0);
	assert_string_equal(o.output_path, "/a");
	assert_int_equal(o.call_stack.mask, 1u << OPT_STACK_C);
	assert_true(o.verbose);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--ver", "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "--ver is ambiguous: --verbose --version");
	assert_int_equal(PARSE(&o, &err, "--c=c", "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "--call-stack --collect-mode");
	assert_int_equal(PARSE(&o, &err, "--fo=x", "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "--format: 'x'");
}

static void the_verb_says_which_of_two_options_a_name_means(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "store", "add", "--events=/e", "x"), 0);
	assert_string_equal(o.events_directory, "/e");
	assert_int_equal(o.events.mask, 0);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "store", "add", "x", "--even", "/e/../f"), 0);
	assert_string_equal(o.events_directory, "/f");
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "--even=free", "prog", "--events=alloc"), 0);
	assert_int_equal(o.events.mask, 1u << OPT_EVENTS_ALLOC);
	assert_null(o.events_directory);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "export", "--events=free", "x"), 0);
	assert_int_equal(o.events.mask, 1u << OPT_EVENTS_FREE);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "store", "add", "x", "--events"), MSCOPE_E_USAGE);
	assert_has(err.message, "--events needs a value (DIR)");
	assert_int_equal(PARSE(&o, &err, "store", "add", "x", "--events=@e"), MSCOPE_E_USAGE);
	assert_has(err.message, "--events: '@e'");
	assert_int_equal(PARSE(&o, &err, "store", "add", "x", "--events="), MSCOPE_E_USAGE);
	assert_has(err.message, "--events: the value is empty");
	assert_int_equal(PARSE(&o, &err, "--events=/e", "store", "add", "x"), MSCOPE_E_USAGE);
	assert_has(err.message, "--events: '/e'");
	assert_int_equal(PARSE(&o, &err, "info", "--events=alloc", "x"), MSCOPE_E_USAGE);
	assert_has(err.message, "--events does not apply to the verb info");
}

static void a_launch_may_write_no_files_and_export_may_not(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "--format=none", "prog"), 0);
	assert_int_equal(o.format, OPT_FORMAT_NONE);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "export", "--format=none", "x"), MSCOPE_E_USAGE);
	assert_has(err.message, "--format=none is for launches");
}

static void letters_join_and_take_values(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "-qo/a", "prog"), 0);
	assert_string_equal(o.output_path, "/a");
	assert_true(o.quiet);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "-qo", "/b", "prog"), 0);
	assert_string_equal(o.output_path, "/b");
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "-o=/a", "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "-o: '=/a'");
	assert_int_equal(PARSE(&o, &err, "-qx", "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "'-qx'");
}

static void unknown_and_unfinished_options_are_named(void **state)
{
	static const struct {
		const char *words[4];
		const char *named;
	} cases[] = {
		{{"--nosuch", "prog"}, "'--nosuch'"},
		{{"--nosuch=1", "prog"}, "'--nosuch=1'"},
		{{"--=1", "prog"}, "'--=1'"},
		{{"--a\n\xff", "prog"}, "'--a\\n\\xff'"},
		{{"-x", "prog"}, "'-x'"},
		{{"-\xc3\xa9", "prog"}, "'-\xc3\xa9'"},
		{{"--output-path"}, "--output-path needs a value (DIR)"},
		{{"-o"}, "-o needs a value (DIR)"},
		{{"--quiet"}, "no program"},
		{{"--"}, "no program"},
		{{NULL}, "no program"},
		{{"recover"}, "recover needs DIR..."},
		{{"info", "--json"}, "info needs RUN..."},
		{{"print-man", "x"}, "print-man has too many"},
		{{"print-completion", "bash", "zsh"}, "print-completion has too many"},
		{{"--call-stack=c", "info", "t"}, "--call-stack does not apply to the verb info"},
		{{"recover", "-o/x", "d"}, "--output-path does not apply to the verb recover"},
		{{"--json", "prog"}, "--json is for verbs"},
		/* What was meant: a slip, another case, a part of a name, a word of an option. */
		{{"--anlysis=leaks", "prog"}, "'--anlysis=leaks'; did you mean --analysis?"},
		{{"--call_stack=c", "prog"}, "; did you mean --call-stack?"},
		{{"--Steps=2", "prog"}, "; did you mean --steps?"},
		{{"--disk=1G", "prog"}, "; did you mean --max-disk?"},
		{{"--no-keep-traces", "prog"}, "; did you mean --no-keep-trace?"},
		{{"--leaks", "prog"}, "; did you mean --analysis=leaks?"},
		{{"--kernel", "prog"}, "; did you mean --level=kernel?"},
		{{"info", "--devise=cpu", "x"}, "; did you mean --device?"},
		{{"--analysis=leaks,decompos", "prog"},
		 "'decompos' is not allowed, did you mean decompose?"},
		{{"--collect-mode=defered", "prog"},
		 "'defered' is not allowed, did you mean deferred?"},
	};
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		assert_int_equal(parse_words(cases[i].words, &o, &err), MSCOPE_E_USAGE);
		assert_printable(err.message);
		assert_has(err.message, cases[i].named);
	}
	assert_int_equal(options_parse(0, (char *[]){NULL}, &o, &err), MSCOPE_E_USAGE);
	assert_int_equal(parse_words(cases[0].words, &o, &err), MSCOPE_E_USAGE);
	/* What is near to nothing gets no proposal, nor does what another verb takes. */
	for (i = 0; i < 6; i++) {
		assert_int_equal(parse_words(cases[i].words, &o, &err), MSCOPE_E_USAGE);
		assert_null(strstr(err.message, "did you mean"));
	}
	assert_int_equal(PARSE(&o, &err, "selftest", "--anlysis=leaks"), MSCOPE_E_USAGE);
	assert_null(strstr(err.message, "did you mean"));
	assert_int_equal(PARSE(&o, &err, "--device=rocm", "prog"), MSCOPE_E_USAGE);
	assert_null(strstr(err.message, "did you mean"));
}

/* Every verb that is shown, also one that is added later, is found by a slip in its name. */
static void words_that_are_no_program_have_a_meaning(void **state)
{
	static const struct {
		const char *word, *meant;
	} cases[] = {
		{"inof", "did you mean the verb info?"},
		{"exprot", "did you mean the verb export?"},
		{"compare", "did you mean --compare?"},
		{"help", "did you mean --help?"},
		{"leaks", "did you mean --analysis=leaks?"},
		{"version", "did you mean --version?"},
		{"xyzzy", ""},
		{"python3", ""},
		{"", ""},
		{"ls", ""},
	};
	const struct verb_row *verb = NULL;
	struct strbuf sb = {0};
	char word[40], meant[80];
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		options_suggest(&sb, cases[i].word);
		/* A verb of that name that comes one day may be meant instead. */
		if (options_verb(cases[i].word) == VERB_NONE)
			assert_string_equal(strbuf_str(&sb), cases[i].meant);
		strbuf_reset(&sb);
	}
	while ((verb = verb_next(verb)) != NULL) {
		(void)snprintf(word, sizeof(word), "%sx", verb->name);
		(void)snprintf(meant, sizeof(meant), "did you mean the verb %s?", verb->name);
		options_suggest(&sb, word);
		assert_string_equal(strbuf_str(&sb), meant);
		strbuf_reset(&sb);
	}
	assert_int_equal(options_verb("print-man"), VERB_NONE);
	assert_int_equal(options_verb("info"), VERB_INFO);
	strbuf_fini(&sb);
}

static void reading_stops_at_help_and_version(void **state)
{
	static const char *const spellings[] = {"--help", "-h", "--help=all", "--version",
						"-v",	  "-V", "--vers",     "-qh"};
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(spellings); i++) {
		assert_int_equal(PARSE(&o, &err, spellings[i], "--nosuch", "--format=db"), 0);
		assert_true(o.help != o.version);
		assert_int_equal(o.word, 0);
		options_fini(&o);
		assert_int_equal(PARSE(&o, &err, "info", spellings[i]), 0);
		assert_true(o.help != o.version);
		assert_int_equal(o.verb, VERB_INFO);
		options_fini(&o);
		assert_int_equal(PARSE(&o, &err, "--nosuch", spellings[i]), MSCOPE_E_USAGE);
		assert_int_equal(PARSE(&o, &err, "prog", spellings[i]), 0);
		assert_false(o.help || o.version);
		assert_string_equal(o.argv[1], spellings[i]);
		options_fini(&o);
	}
}

/* Whose is what: the words after the line's options, and what the program gets of them. */
static void program_keeps_what_is_not_ours(void **state)
{
	static const struct {
		const char *words[8];
		const char *program[8];
		const char *taken[3]; /* named in the one notice; none: no notice */
	} cases[] = {
		{{"app", "--call-stack=c"}, {"app"}, {"--call-stack=c"}},
		{{"./app", "a", "--format=csv", "b", "--output=/x"},
		 {"./app", "a", "b"},
		 {"--format=csv", "--output=/x"}},
		{{"--", "app", "--call-stack=c", "-o", "--help"},
		 {"app", "--call-stack=c", "-o", "--help"},
		 {0}},
		{{"--", "app", "--", "--format=csv"}, {"app", "--", "--format=csv"}, {0}},
		{{"app", "--format=csv", "--", "--format=csv"},
		 {"app", "--", "--format=csv"},
		 {"--format=csv"}},
		{{"app", "--format", "csv"}, {"app", "--format", "csv"}, {0}},
		{{"app", "--form=csv"}, {"app", "--form=csv"}, {0}},
		{{"app", "-o/x", "-q", "-h", "-v"}, {"app", "-o/x", "-q", "-h", "-v"}, {0}},
		{{"app", "--help", "--version"}, {"app", "--help", "--version"}, {0}},
		{{"app", "--help=1", "--json=1", "--verbose=1"},
		 {"app", "--help=1", "--json=1", "--verbose=1"},
		 {0}},
		{{"app", "--verbose", "--json"}, {"app", "--verbose", "--json"}, {0}},
		{{"app", "--run=1", "--tag=x", "--job=y", "--commit=z", "--store=sqlite:a"},
		 {"app", "--run=1", "--tag=x", "--job=y", "--commit=z", "--store=sqlite:a"},
		 {0}},
		{{"app", "--no-keep-trace", "x", "--best-effort"},
		 {"app", "x"},
		 {"--no-keep-trace", "--best-effort"}},
		{{"app", "--", "--no-keep-trace"}, {"app", "--", "--no-keep-trace"}, {0}},
		{{"app", "--no-keep", "--no-keep-trace=1"},
		 {"app", "--no-keep", "--no-keep-trace=1"},
		 {0}},
		{{"app", "--nosuch=1", "--=1", "---", "-"},
		 {"app", "--nosuch=1", "--=1", "---", "-"},
		 {0}},
		{{"app", "info", "recover"}, {"app", "info", "recover"}, {0}},
		{{"./info", "x"}, {"./info", "x"}, {0}},
		{{"--", "info", "x"}, {"info", "x"}, {0}},
		{{"-q", "--", "recover"}, {"recover"}, {0}},
		{{"run", "app", "--call-stack=c"}, {"app"}, {"--call-stack=c"}},
		{{"-q", "run", "-q", "info", "x"}, {"info", "x"}, {0}},
		{{"run", "--", "info", "x"}, {"info", "x"}, {0}},
		{{"run", "run", "x"}, {"run", "x"}, {0}},
		{{"./run", "x"}, {"./run", "x"}, {0}},
		{{"--", "run", "x"}, {"run", "x"}, {0}},
		{{"-", "x"}, {"-", "x"}, {0}},
		{{"", "x"}, {"", "x"}, {0}},
	};
	size_t i, k;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		struct mscope_error err;
		struct options o;
		const char *notices;

		if (parse_words(cases[i].words, &o, &err) != 0)
			fail_msg("case %zu: %s", i, err.message);
		assert_int_equal(o.verb, VERB_NONE);
		assert_ptr_equal(o.argv[0], cases[i].words[o.word - 1]);
		for (k = 0; cases[i].program[k] != NULL; k++) {
			assert_true(k < (size_t)o.argc);
			assert_string_equal(o.argv[k], cases[i].program[k]);
		}
		assert_int_equal(o.argc, k);
		assert_null(o.argv[k]);
		notices = strbuf_str(&o.notices);
		if (cases[i].taken[0] == NULL) {
			assert_string_equal(notices, "");
		} else {
			assert_ptr_equal(strchr(notices, '\n'), notices + strlen(notices) - 1);
			assert_has(notices, " -- ");
		}
		for (k = 0; k < MSCOPE_COUNT(cases[i].taken) && cases[i].taken[k] != NULL; k++)
			assert_has(notices, cases[i].taken[k]);
		options_fini(&o);
	}
}

/* It may be a slip in what was meant for us, so a line says so. */
static void what_could_have_been_ours_is_named(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "app", "--data-format=png", "--level=all"), 0);
	assert_int_equal(o.argc, 3);
	assert_string_equal(o.argv[1], "--data-format=png");
	assert_string_equal(o.argv[2], "--level=all");
	assert_has(strbuf_str(&o.notices), "passed to the program: --data-format: 'png' is not");
	assert_has(strbuf_str(&o.notices), "\npassed to the program: --level: ");
	options_fini(&o);
}

static void verbs_take_options_anywhere(void **state)
{
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_int_equal(PARSE(&o, &err, "-q", "info", "a", "--json", "--log-level", "info", "b",
			       "--", "--json"),
			 0);
	assert_int_equal(o.verb, VERB_INFO);
	assert_int_equal(o.word, 2);
	assert_true(o.json);
	assert_int_equal(o.log_level, OPT_LOG_INFO);
	assert_int_equal(o.argc, 4);
	assert_string_equal(o.argv[0], "info");
	assert_string_equal(o.argv[1], "a");
	assert_string_equal(o.argv[2], "b");
	assert_string_equal(o.argv[3], "--json");
	assert_null(o.argv[4]);
	assert_null(o.output_path);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "info", "a", "--jso", "--log=error"), 0);
	assert_true(o.json);
	assert_int_equal(o.log_level, OPT_LOG_ERROR);
	options_fini(&o);
}

static void paths_become_absolute_without_the_disk(void **state)
{
	static const struct {
		const char *given, *made;
	} cases[] = {
		{"out", "/usr/out"},
		{".", "/usr"},
		{"..", "/"},
		{"/", "/"},
		{"/..", "/"},
		{"/../../a", "/a"},
		{"./a//b/./c/", "/usr/a/b/c"},
		{"a/../b", "/usr/b"},
		{"/a/b/..", "/a"},
		{"/a/...", "/a/..."},
		{"  /a b \t", "/a b"},
		{"/a\tb", "/a\tb"},
		{"/\xe4\xb8\x80" WIDE_COMMA KAI, "/\xe4\xb8\x80" WIDE_COMMA KAI},
	};
	struct mscope_error err;
	struct options o;
	size_t i;
	(void)state;

	assert_int_equal(chdir("/usr"), 0);
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		assert_int_equal(PARSE(&o, &err, "-o", cases[i].given, "prog"), 0);
		assert_string_equal(o.output_path, cases[i].made);
		options_fini(&o);
	}
}

/* "/" and a name, `count` times. */
static char *deep_path(char *path, size_t count, size_t name_bytes)
{
	size_t i;

	for (i = 0; i < count; i++) {
		path[i * (name_bytes + 1)] = '/';
		memset(path + i * (name_bytes + 1) + 1, 'n', name_bytes);
	}
	path[count * (name_bytes + 1)] = '\0';
	return path;
}

static void paths_keep_to_their_limits(void **state)
{
	struct mscope_error err;
	struct options o;
	char path[9000];
	(void)state;

	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 32, 127), "prog"), 0);
	assert_int_equal(strlen(o.output_path), 4096);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "-o", strcat(path, "n"), "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "(4097 bytes) is too long");
	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 1, 255), "prog"), 0);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 1, 256), "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "a name that is too long");
	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 33, 1), "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "too many levels");
	/* The limits are those of the absolute path. */
	assert_int_equal(chdir("/usr"), 0);
	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 32, 1) + 1, "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "too many levels");
	assert_int_equal(PARSE(&o, &err, "-o", deep_path(path, 31, 131) + 1, "prog"), 0);
	assert_int_equal(strlen(o.output_path), 4096);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "-o", strcat(path, "n") + 1, "prog"), MSCOPE_E_USAGE);
	assert_has(err.message, "(4092 bytes) is too long");
}

static void missing_directory_matters_only_where_it_is_needed(void **state)
{
	char here[] = "/tmp/test_options.XXXXXX";
	struct mscope_error err;
	struct options o;
	(void)state;

	assert_non_null(mkdtemp(here));
	assert_int_equal(chdir(here), 0);
	assert_int_equal(rmdir(here), 0);
	assert_int_equal(PARSE(&o, &err, "prog"), -ENOENT);
	assert_has(err.message, "--output-path: 'memscopeDumpResults' cannot be made absolute");
	assert_int_equal(PARSE(&o, &err, "-o/x", "prog"), 0);
	options_fini(&o);
	assert_int_equal(PARSE(&o, &err, "info", "t"), 0);
	options_fini(&o);
	assert_int_equal(chdir("/"), 0);
}

/* Whatever allocation fails, the answer is the right one or "out of memory", and nothing is lost. */
static void failed_allocations_are_reported(void **state)
{
	static const struct {
		const char *words[6];
		int answer;
	} cases[] = {
		{{"-o/a", "-ob", "prog", "--call-stack=none,c", "--output=x"}, 0},
		{{"-qo", "a/../..", "--max-disk=3G", "--", "prog"}, 0},
		{{"info", "--json", "t"}, 0},
		{{"--format=x", "prog"}, MSCOPE_E_USAGE},
		{{"--watch=a:0" WIDE_COMMA "b", "--steps=1", "prog"}, 0},
		{{"--watch=a:x,", "prog"}, MSCOPE_E_USAGE},
		{{"--ver", "prog"}, MSCOPE_E_USAGE},
		{{"-x", "prog"}, MSCOPE_E_USAGE},
	};
	struct mscope_error err;
	struct options o;
	size_t i;
	int r;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		for (failing_allocation = 1;; failing_allocation++) {
			allocations = 0;
			r = parse_words(cases[i].words, &o, &err);
			if (r == 0)
				options_fini(&o);
			if (r != -ENOMEM)
				assert_int_equal(r, cases[i].answer);
			if (r != 0)
				assert_printable(err.message);
			if (allocations < failing_allocation)
				break;
		}
		assert_int_equal(r, cases[i].answer);
		assert_true(failing_allocation > 1);
	}
	failing_allocation = 0;
}

static void tables_are_consistent(void **state)
{
	const struct option_row *row = NULL, *other;
	const struct option_word *word = NULL;
	const char *name, *letter;
	size_t k;
	(void)state;

	while ((row = option_next(row)) != NULL) {
		assert_non_null(row->group);
		assert_non_null(row->help);
		assert_true(row->scope != 0);
		assert_int_equal(row->value != NULL, row->kind != OPTION_KIND_flag);
		for (k = 0; (name = option_name(row, k)) != NULL; k++) {
			assert_true(strlen(name) < 30 && strchr(name, '=') == NULL);
			for (other = option_next(row); other != NULL; other = option_next(other)) {
				size_t j;

				/* Two may share a name that never means both. */
				for (j = 0; option_name(other, j) != NULL; j++)
					assert_true(strcmp(name, option_name(other, j)) != 0 ||
						    (row->scope & other->scope) == 0);
			}
		}
		for (letter = row->letters; letter != NULL && *letter != '\0'; letter++) {
			for (other = option_next(row); other != NULL; other = option_next(other))
				assert_true(other->letters == NULL ||
					    strchr(other->letters, *letter) == NULL);
		}
		while ((word = option_next_word(row, word)) != NULL) {
			assert_true(row->kind == OPTION_KIND_word || row->kind == OPTION_KIND_set);
			assert_true(row->kind != OPTION_KIND_set || word->value < OPTION_SET_BITS);
			assert_true(row->kind == OPTION_KIND_set ||
				    word->kind != OPTION_WORD_NUMBERED);
		}
	}
}

static void arguments_of_config_have_places_without_a_gap(void **state)
{
	const struct option_row *row = NULL;
	uint32_t places = 0;
	(void)state;

	while ((row = option_next(row)) != NULL) {
		if (row->config == 0)
			continue;
		assert_in_range(row->config, 1, 31);
		assert_int_equal(places >> row->config & 1, 0);
		places |= 1u << row->config;
		assert_true(option_applies(row, VERB_NONE));
		/* What _values.py reads. */
		assert_true(row->kind == OPTION_KIND_word || row->kind == OPTION_KIND_set ||
			    row->kind == OPTION_KIND_path || row->kind == OPTION_KIND_watch ||
			    row->kind == OPTION_KIND_text || row->kind == OPTION_KIND_number);
	}
	assert_int_equal((places | 1) & ((places | 1) + 1), 0);
}

/* Lines of a help, none wider than a screen. */
static int help_lines(const struct strbuf *sb)
{
	const char *at, *end;
	int lines = 0;

	for (at = strbuf_str(sb); *at != '\0'; at = end + 1, lines++) {
		end = strchr(at, '\n');
		assert_non_null(end);
		assert_true(end - at <= 80);
		assert_true(end == at || end[-1] != ' ');
	}
	return lines;
}

/* Whether a help has an entry for the option. */
static bool help_lists(const struct strbuf *sb, const struct option_row *row)
{
	char text[100];
	const char *at;

	(void)snprintf(text, sizeof(text), "%s--%s%s%s", row->letters == NULL ? "\n      " : ", ",
		       row->name, row->value == NULL ? "" : "=",
		       row->value == NULL ? "" : row->value);
	for (at = strstr(strbuf_str(sb), text);
	     at != NULL && strchr(" \n", at[strlen(text)]) == NULL;)
		at = strstr(at + 1, text);
	return at != NULL;
}

static void help_fits_one_screen_and_names_everything(void **state)
{
	const struct option_row *row = NULL;
	const struct verb_row *verb;
	struct strbuf sb = {0};
	const char *examples, *at;
	int count = 0;
	(void)state;

	options_help(&sb, VERB_NONE, true);
	assert_true(help_lines(&sb) <= 85);
	while ((row = option_next(row)) != NULL) {
		assert_int_equal(help_lists(&sb, row), option_stands_alone(row));
		if (row->initial != NULL && option_stands_alone(row))
			assert_has(strbuf_str(&sb), row->initial);
	}
	for (verb = verb_rows + 1; verb < verb_rows + VERB_COUNT; verb++)
		assert_int_equal(strstr(strbuf_str(&sb), verb->name) == NULL, verb->hidden);
	assert_has(strbuf_str(&sb), "NPU");
	assert_has(strbuf_str(&sb), "GPU");
	assert_has(strbuf_str(&sb), "CPU");
	/* The help ends with three commands. */
	examples = strstr(strbuf_str(&sb), "\nExamples:\n");
	assert_non_null(examples);
	for (at = strstr(examples, "\n  msmemscope "); at != NULL;
	     at = strstr(at + 1, "\n  msmemscope "))
		count++;
	assert_int_equal(count, 3);
	at = strrchr(strbuf_str(&sb), '\n');
	assert_string_equal(at, "\n");
	assert_null(strstr(strstr(examples, "Examples:\n") + 10, "\n\n"));
	strbuf_fini(&sb);
}

/* The plain help: ten options, every verb, and how to get the rest. */
static void plain_help_has_the_common_options(void **state)
{
	const struct option_row *row = NULL;
	const struct verb_row *verb = NULL;
	struct strbuf sb = {0};
	int count = 0;
	(void)state;

	options_help(&sb, VERB_NONE, false);
	assert_true(help_lines(&sb) <= 52);
	while ((row = option_next(row)) != NULL) {
		assert_int_equal(help_lists(&sb, row), row->common);
		assert_true(!row->common || option_applies(row, VERB_NONE));
		count += row->common;
	}
	assert_int_equal(count, 10);
	while ((verb = verb_next(verb)) != NULL)
		assert_has(strbuf_str(&sb), verb->help);
	assert_has(strbuf_str(&sb), "--help=all");
	assert_has(strbuf_str(&sb), "VERB --help");
	assert_has(strbuf_str(&sb), "man msmemscope");
	assert_has(strbuf_str(&sb), "\nExamples:\n");
	strbuf_fini(&sb);
}

/* The help of each verb: all options of the verb, and only those. */
static void every_verb_has_a_help_of_its_own(void **state)
{
	const struct verb_row *verb = NULL;
	const struct option_row *row;
	struct strbuf sb = {0};
	bool seen[256] = {false};
	char usage[200];
	(void)state;

	while ((verb = verb_next(verb)) != NULL) {
		enum verb number = (enum verb)(verb - verb_rows);

		options_help(&sb, number, false);
		(void)help_lines(&sb);
		(void)snprintf(usage, sizeof(usage), "Usage: msmemscope %s [OPTION...]%s%s\n",
			       verb->name, verb->arguments[0] != '\0' ? " " : "", verb->arguments);
		assert_ptr_equal(strstr(strbuf_str(&sb), usage), strbuf_str(&sb));
		assert_has(strbuf_str(&sb), verb->help + 1);
		for (row = NULL; (row = option_next(row)) != NULL;) {
			assert_int_equal(help_lists(&sb, row), option_applies(row, number));
			assert_true(option_id(row) < MSCOPE_COUNT(seen));
			seen[option_id(row)] |= option_applies(row, number);
		}
		strbuf_reset(&sb);
	}
	/* Options that a launch does not have are in the help of a verb. */
	for (row = NULL; (row = option_next(row)) != NULL;)
		assert_true(option_stands_alone(row) || seen[option_id(row)]);
	strbuf_fini(&sb);
}

static void man_page_names_every_spelling(void **state)
{
	static const char *const requests[] = {".TH ", ".SH ",	".SS ",	 ".TP\n", ".PP\n",
					       ".B ",  ".br\n", ".nf\n", ".fi\n"};
	const struct option_row *row = NULL;
	struct strbuf sb = {0};
	const char *at, *name;
	char spelled[80];
	size_t i, k;
	(void)state;

	options_man(&sb);
	for (at = strbuf_str(&sb); at != NULL && *at != '\0';
	     at = strchr(at, '\n'), at += at != NULL) {
		bool known = *at != '.' && *at != '\'';

		for (i = 0; i < MSCOPE_COUNT(requests); i++)
			known = known || strncmp(at, requests[i], strlen(requests[i])) == 0;
		if (!known)
			fail_msg("bad roff: %.40s", at);
	}
	while ((row = option_next(row)) != NULL) {
		for (k = 0; (name = option_name(row, k)) != NULL; k++) {
			char *to = spelled + sprintf(spelled, "\\fB\\-\\-");

			for (; *name != '\0'; name++)
				to += sprintf(to, *name == '-' ? "\\-" : "%c", *name);
			strcpy(to, "\\fR");
			assert_has(strbuf_str(&sb), spelled);
		}
	}
	assert_null(strstr(strbuf_str(&sb), "print-"));
	strbuf_fini(&sb);
}

/* Gives `script` to a shell and takes what it prints. False when there is no such shell. */
static bool ask_shell(const char *shell, const char *flag, const char *script, char *answer,
		      size_t room)
{
	char path[] = "/tmp/test_options.XXXXXX", command[200];
	size_t length;
	FILE *file;
	int fd;

	(void)snprintf(command, sizeof(command), "command -v %s >/dev/null", shell);
	if (system(command) != 0)
		return false;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, script, strlen(script)), strlen(script));
	close(fd);
	(void)snprintf(command, sizeof(command), "%s %s %s 2>&1", shell, flag, path);
	file = popen(command, "r");
	assert_non_null(file);
	length = fread(answer, 1, room - 1, file);
	answer[length] = '\0';
	(void)pclose(file);
	(void)unlink(path);
	return true;
}

static void bash_completes_options_values_and_verbs(void **state)
{
	static const struct {
		const char *words; /* as readline splits them */
		const char *offered;
	} cases[] = {
		{"--fo", "--format="},
		{"--format =",
		 "csv db parquet none torch perfetto speedscope pprof collapsed jsonl"},
		{"--device = c", "cpu"},
		{"--collect-mode = de", "deferred"},
		{"--log-level in", "info"},
		{"--call-stack = c,p", "c,python"},
		{"-o /us", "/usr"},
		{"--comp", "--compare"},
		{"--compare --inp", "--input-path="},
		{"--input = /tmp,/us", "/tmp,/usr"},
		{"-i /us", "/usr"},
		{"--events = al", "alloc"},
		{"store add --events = /us", "/usr"},
		{"store --even", "--events="},
		{"info --js", "--json"},
		{"info --call", ""},
		{"--js", ""},
		{"-q --output-path = /x recover --js", "--json"},
		{"-- recov", ""},
		{"./app --fo", ""},
	};
	struct strbuf script = {0}, expected = {0};
	char answer[4000];
	bool there;
	size_t i;
	(void)state;

	options_bash(&script);
	strbuf_add_str(&script,
		       "PATH=/nowhere; cd /; compopt() { :; }\n"
		       "try() { COMP_WORDS=(msmemscope \"$@\"); COMP_CWORD=$#; _msmemscope; "
		       "echo \"$*: ${COMPREPLY[*]}\"; }\n");
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		strbuf_addf(&script, "try %s\n", cases[i].words);
		strbuf_addf(&expected, "%s: %s\n", cases[i].words, cases[i].offered);
	}
	there = ask_shell("bash", "--norc", strbuf_str(&script), answer, sizeof(answer));
	if (there)
		assert_string_equal(answer, strbuf_str(&expected));
	strbuf_fini(&script);
	strbuf_fini(&expected);
	if (!there)
		skip();
}

static void zsh_understands_its_completion(void **state)
{
	struct strbuf script = {0};
	char answer[1000];
	bool there;
	(void)state;

	options_zsh(&script);
	assert_memory_equal(strbuf_str(&script), "#compdef msmemscope msleaks\n", 28);
	there = ask_shell("zsh", "-n", strbuf_str(&script), answer, sizeof(answer));
	if (there)
		assert_string_equal(answer, "");
	strbuf_fini(&script);
	if (!there)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_values_are_accepted),
		cmocka_unit_test(bad_values_are_named_with_what_is_allowed),
		cmocka_unit_test(every_option_has_cases),
		cmocka_unit_test(compare_needs_two_inputs_and_no_program),
		cmocka_unit_test(every_option_refuses_rubbish),
		cmocka_unit_test(long_values_are_cut_between_characters),
		cmocka_unit_test(defaults_hold_when_nothing_is_given),
		cmocka_unit_test(values_reach_their_fields),
		cmocka_unit_test(lists_reach_their_fields),
		cmocka_unit_test(steps_have_room_for_1024),
		cmocka_unit_test(watch_is_taken_apart),
		cmocka_unit_test(old_name_has_its_own_directory),
		cmocka_unit_test(last_of_two_counts),
		cmocka_unit_test(none_wins_in_a_list_and_says_so),
		cmocka_unit_test(explicit_level_beats_verbose_beats_quiet),
		cmocka_unit_test(abbreviations_must_fit_one_option),
		cmocka_unit_test(the_verb_says_which_of_two_options_a_name_means),
		cmocka_unit_test(a_launch_may_write_no_files_and_export_may_not),
		cmocka_unit_test(letters_join_and_take_values),
		cmocka_unit_test(unknown_and_unfinished_options_are_named),
		cmocka_unit_test(words_that_are_no_program_have_a_meaning),
		cmocka_unit_test(reading_stops_at_help_and_version),
		cmocka_unit_test(program_keeps_what_is_not_ours),
		cmocka_unit_test(what_could_have_been_ours_is_named),
		cmocka_unit_test(verbs_take_options_anywhere),
		cmocka_unit_test(paths_become_absolute_without_the_disk),
		cmocka_unit_test(paths_keep_to_their_limits),
		cmocka_unit_test(missing_directory_matters_only_where_it_is_needed),
		cmocka_unit_test(failed_allocations_are_reported),
		cmocka_unit_test(tables_are_consistent),
		cmocka_unit_test(arguments_of_config_have_places_without_a_gap),
		cmocka_unit_test(help_fits_one_screen_and_names_everything),
		cmocka_unit_test(plain_help_has_the_common_options),
		cmocka_unit_test(every_verb_has_a_help_of_its_own),
		cmocka_unit_test(man_page_names_every_spelling),
		cmocka_unit_test(bash_completes_options_values_and_verbs),
		cmocka_unit_test(zsh_understands_its_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
