/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "engine/projects.h"
#include "engine/session_place.h"
#include "trace/pack.h"

#define PACK_SUFFIX ".msc"

/* ---- what a word means ---- */

static int use_raw(struct input *input, const char *path)
{
	input->unfinished = true;
	(void)snprintf(input->raw, sizeof(input->raw), "%s", path);
	/* The engine's part of an unfinished trace lies beside it. */
	if (text_ends_with(path, SESSION_RAW) &&
	    snprintf(input->pack, sizeof(input->pack), "%.*s%s",
		     (int)(strlen(path) - strlen(SESSION_RAW)), path,
		     SESSION_PART) < (int)sizeof(input->pack) &&
	    access(input->pack, F_OK) == 0)
		return 0;
	input->pack[0] = '\0';
	return 0;
}

static int use_pack(struct input *input, const char *path)
{
	(void)snprintf(input->pack, sizeof(input->pack), "%s", path);
	return 0;
}

static int use_dumps(struct input *input, const struct paths *files, struct mscope_error *err)
{
	int r;

	input->imported = true;
	r = import_dumps((const char *const *)files->all, files->count, input->found,
			 &input->import, &input->import_fd, err);
	if (r == 0)
		(void)snprintf(input->pack, sizeof(input->pack), "/proc/self/fd/%d",
			       input->import_fd);
	return r;
}

static int find_file(struct input *input, const char *path, struct mscope_error *err)
{
	struct paths one = {.count = 1, .all = &(char *){(char *)(uintptr_t)path}};
	char start[sizeof(TRACE_MAGIC) - 1] = "";
	int fd = io_open_file(path, O_RDONLY, err);
	bool packed, raw;

	if (fd < 0)
		return fd;
	packed = pack_probe(fd);
	raw = pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
	      memcmp(start, TRACE_MAGIC, sizeof(start)) == 0;
	(void)close(fd);
	if (packed)
		return use_pack(input, path);
	/* One that is cut or damaged at its very start is still known by its name. */
	if (raw || text_ends_with(path, SESSION_RAW) || text_ends_with(path, PACK_SUFFIX))
		return use_raw(input, path);
	return use_dumps(input, &one, err);
}

/* Appends the last components of some paths, as many as a sentence bears. */
static void add_names(char *text, size_t bytes, const struct paths *names)
{
	size_t i, length = 0;

	text[0] = '\0';
	for (i = 0; i < names->count && i < 3; i++)
		length += (size_t)snprintf(text + length, bytes - length, "%s%.64s",
					   i == 0 ? "" : ", ", strrchr(names->all[i], '/') + 1);
	if (names->count > 3)
		(void)snprintf(text + length, bytes - length, ", ...");
}

static int find_in_directory(struct input *input, const char *path, bool projects,
			     struct mscope_error *err)
{
	static const char *const extensions[] = {".csv", ".db"};
	struct paths files = {0}, below = {0};
	char trace[PATH_MAX], text[256];
	size_t i;
	int r = 0;

	(void)snprintf(input->found, sizeof(input->found), "%s", path);
	if (snprintf(trace, sizeof(trace), "%s/" PROJECT_TRACE, path) < (int)sizeof(trace) &&
	    access(trace, F_OK) == 0)
		return use_pack(input, trace);
	/* Of files in both forms one has the rows of the other. */
	for (i = 0; i < MSCOPE_COUNT(extensions) && files.count == 0 && r == 0; i++)
		r = paths_list_dumps(path, extensions[i], &files);
	if (r == 0 && files.count > 0) {
		r = use_dumps(input, &files, err);
		paths_fini(&files);
		return r;
	}
	paths_fini(&files);
	if (r == 0 && projects)
		r = projects_list(path, &below, NULL);
	if (r < 0) {
		(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	} else if (below.count == 1) {
		r = find_in_directory(input, below.all[0], false, err);
	} else if (below.count > 1) {
		add_names(text, sizeof(text), &below);
		r = error_set(err, MSCOPE_E_LIMIT, "%s has %zu projects (%s); choose one", path,
			      below.count, text);
	} else {
		r = error_set(err, MSCOPE_E_ABSENT,
			      "%s has no trace, no memscope_dump file and no project", path);
	}
	paths_fini(&below);
	return r;
}

static int find(struct input *input, const char *word, struct mscope_error *err)
{
	struct stat st;

	if (snprintf(input->found, sizeof(input->found), "%s", word) >= (int)sizeof(input->found))
		return error_set(err, -ENAMETOOLONG, "the path %.64s... is too long", word);
	if (stat(word, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", word, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return find_in_directory(input, word, true, err);
	if (!S_ISREG(st.st_mode))
		return error_set(err, MSCOPE_E_FOREIGN, "%s is neither a file nor a directory",
				 word);
	return find_file(input, word, err);
}

static int open_word(struct input *input, const char *word, struct import import,
		     struct mscope_error *err)
{
	int r;

	*input = (struct input){.import = import, .import_fd = -1};
	r = find(input, word, err);
	return r == 0 ? input_reopen(input, &input->run, err) : r;
}

int input_open(struct input *input, const char *word, input_progress *progress, void *arg,
	       struct mscope_error *err)
{
	return open_word(input, word,
			 (struct import){.reading = {.progress = progress, .progress_arg = arg}},
			 err);
}

int input_open_processes(struct input *input, const char *word, input_progress *progress, void *arg,
			 struct mscope_error *err)
{
	return open_word(input, word,
			 (struct import){.processes = true,
					 .reading = {.progress = progress, .progress_arg = arg}},
			 err);
}

int input_open_process(struct input *input, const char *word, uint32_t pid,
		       input_progress *progress, void *arg, struct mscope_error *err)
{
	return open_word(input, word,
			 (struct import){.one_process = true,
					 .pid = pid,
					 .reading = {.progress = progress, .progress_arg = arg}},
			 err);
}

int input_reopen(const struct input *input, struct run **out, struct mscope_error *err)
{
	return run_open(input->raw[0] != '\0' ? input->raw : NULL,
			input->pack[0] != '\0' ? input->pack : NULL, false, out, err);
}

void input_close(struct input *input)
{
	run_close(input->run);
	input->run = NULL;
	if (input->imported || input->anonymous)
		io_close(&input->import_fd);
	import_fini(&input->import);
}

bool input_is_damaged(const struct input *input)
{
	return input->unfinished || import_is_damaged(&input->import);
}

/* ---- ranks ---- */

/* The rank that a launcher gave the process of a project; false: none is known. */
static bool rank_of(const char *project, uint32_t *out)
{
	static const char *const keys[] = {"RANK",	"RANK_ID",  "OMPI_COMM_WORLD_RANK",
					   "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
					   "LOCAL_RANK"};
	struct input input = {0};
	const char *text = NULL;
	uint64_t rank = 0;
	size_t i;
	bool known;

	/* Only a trace tells; dump files need not be read for it. */
	(void)snprintf(input.pack, sizeof(input.pack), "%s/" PROJECT_TRACE, project);
	if (access(input.pack, F_OK) < 0 || input_reopen(&input, &input.run, NULL) < 0)
		return false;
	for (i = 0; i < MSCOPE_COUNT(keys) && text == NULL; i++)
		text = run_identity(input.run, keys[i]);
	known = text != NULL && number_parse(text, &rank) && rank <= UINT32_MAX;
	run_close(input.run);
	*out = (uint32_t)rank;
	return known;
}

static int by_rank(const void *a, const void *b)
{
	const struct input_rank *x = a, *y = b;

	return ORDER_UP(x->rank, y->rank);
}

int input_ranks(const char *word, struct input_rank **out, size_t *out_count)
{
	struct paths projects = {0};
	struct input_rank *ranks;
	bool known = true;
	size_t i;

	*out_count = 0;
	*out = NULL;
	if (projects_list(word, &projects, NULL) < 0 || projects.count < 2) {
		paths_fini(&projects);
		return 0;
	}
	ranks = calloc(projects.count, sizeof(*ranks));
	for (i = 0; ranks != NULL && i < projects.count && known; i++) {
		ranks[i].path = projects.all[i];
		known = rank_of(ranks[i].path, &ranks[i].rank);
	}
	if (ranks != NULL && known)
		qsort(ranks, projects.count, sizeof(*ranks), by_rank);
	for (i = 1; ranks != NULL && known && i < projects.count; i++)
		known = ranks[i].rank != ranks[i - 1].rank;
	if (ranks == NULL || !known) {
		paths_fini(&projects);
		i = ranks == NULL;
		free(ranks);
		return i ? -ENOMEM : 0;
	}
	*out = ranks;
	*out_count = projects.count;
	free(projects.all); /* the texts are the ranks' */
	return 0;
}

int input_processes(const char *word, struct input_rank **out, size_t *out_count)
{
	struct paths projects = {0};
	struct input_rank *all = NULL;
	const char *pid;
	size_t i;

	*out_count = 0;
	*out = NULL;
	if (projects_list(word, &projects, NULL) == 0 && projects.count > 1)
		all = calloc(projects.count, sizeof(*all));
	if (all == NULL) {
		i = projects.count;
		paths_fini(&projects);
		return i > 1 ? -ENOMEM : 0;
	}
	for (i = 0; i < projects.count; i++) {
		pid = strchr(strrchr(projects.all[i], '/'), '_');
		all[i] = (struct input_rank){
			.path = projects.all[i],
			.rank = pid == NULL ? 0 : (uint32_t)strtoul(pid + 1, NULL, 10)};
	}
	*out = all;
	*out_count = projects.count;
	free(projects.all); /* the texts are theirs */
	return 0;
}

/* ---- where its results are ---- */

/* Cuts the last component off an absolute path. */
static void cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	slash[slash == path ? 1 : 0] = '\0';
}

/* A directory that an engine made for one run. Session directories have a dot before the same name. */
static bool is_of_one_run(const char *directory)
{
	const char *name = strrchr(directory, '/') + 1;

	name += name[0] == '.';
	return text_starts_with(name, "msmemscope_") || text_starts_with(name, "msleaks_");
}

/* Goes up from the dump directory of a device, PROJECT/device_ID/dump, to the project. */
static void leave_dump(char *path)
{
	if (strcmp(strrchr(path, '/') + 1, "dump") == 0)
		cut_last(path);
	if (text_starts_with(strrchr(path, '/') + 1, "device_"))
		cut_last(path);
}

int input_home(const struct input *input, char *out, size_t bytes, struct mscope_error *err)
{
	char place[PATH_MAX];
	struct session_place session;
	struct stat st;

	if (realpath(input->found, place) == NULL || stat(place, &st) < 0)
		return error_set(err, -errno, "cannot open %s: %s", input->found, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		cut_last(place);
	if (input->imported)
		leave_dump(place);
	if (session_open(place, &session, NULL) == 0) {
		/* Raw traces may lie on another disk than the results. */
		(void)snprintf(place, sizeof(place), "%s", session.session->output);
		session_close(&session);
	} else if (is_of_one_run(place)) {
		cut_last(place);
	}
	if (snprintf(out, bytes, "%s", place) >= (int)bytes)
		return error_set(err, -ENAMETOOLONG, "the path %s is too long", place);
	return 0;
}

void input_stem(const struct input *input, char out[PROJECT_STEM_MAX])
{
	const struct trace_header *header = run_header(input->run);
	char place[PATH_MAX], stamp[16];
	const char *name;
	struct stat st;

	if (realpath(input->found, place) != NULL && stat(place, &st) == 0) {
		if (!S_ISDIR(st.st_mode))
			cut_last(place);
		if (input->imported)
			leave_dump(place);
		name = strrchr(place, '/') + 1;
		/* The name of a session directory has the pid of its launch. */
		if (name[0] != '.' && is_of_one_run(place)) {
			project_stem(name, out);
			return;
		}
	}
	project_stamp(header->realtime_ns, header->utc_offset_s, stamp);
	(void)snprintf(out, PROJECT_STEM_MAX, "msmemscope_%u_%s", header->pid, stamp);
}

int input_exit_code(int code)
{
	return code == MSCOPE_E_DAMAGED || code == MSCOPE_E_TRUNCATED ? MSCOPE_EXIT_DAMAGED
								      : MSCOPE_EXIT_FAILED;
}
