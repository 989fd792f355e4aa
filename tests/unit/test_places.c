/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about places: whose code a frame is (symbols/origin.h), which stacks are one place and how it is shown (findings/site.h),
 * what of it a trace keeps (replay/frame_lines.h), and which places held the peak (analysis/peak.h), against a model that keeps
 * every block.
 */
#include "base/json.h"
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/peak.h"
#include "findings/site.h"
#include "findings/site_names.h"
#include "replay/state.h"
#include "trace/pack.h"
#include "trace/session.h"
#include "trace_maker.h"

#define PTA   1u
#define HAL   2u
#define PTA_1 3u

#define APP_AT	   UINT64_C(0x10000)
#define RUNTIME_AT UINT64_C(0x20000)
#define TORCH_AT   UINT64_C(0x30000)
#define PYTHON_AT  UINT64_C(0x40000)
#define EXTRA_AT   UINT64_C(0x50000)

enum { APP = 1, RUNTIME, TORCH, PYTHON, EXTRA };

struct play {
	struct maker maker;
	struct maker_writer w;
	uint64_t now;
	uint32_t stacks, codes, texts;
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
	struct analyses analyses;
	struct strbuf out;
};

static int begin(void **state)
{
	struct play *p = calloc(1, sizeof(*p));
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&p->maker, path, MAKER_CHUNK_BYTES, 4096);
	p->now = 2000;
	p->w = (struct maker_writer){.maker = &p->maker, .number = 1};
	maker_thread(&p->w, p->now++, 70);
	maker_context(&p->w, p->now++, PTA, POOL_pta, BLOCK_ALLOC, 0);
	maker_context(&p->w, p->now++, HAL, POOL_hal, BLOCK_ALLOC, 0);
	maker_context(&p->w, p->now++, PTA_1, POOL_pta, BLOCK_ALLOC, 1);
	maker_module(&p->w, p->now++, APP, APP_AT, APP_AT + 0x8000, "/mine/train");
	maker_module(&p->w, p->now++, RUNTIME, RUNTIME_AT, RUNTIME_AT + 0x8000,
		     "/usr/local/Ascend/lib64/libascendcl.so");
	maker_module(&p->w, p->now++, TORCH, TORCH_AT, TORCH_AT + 0x8000,
		     "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so");
	maker_module(&p->w, p->now++, PYTHON, PYTHON_AT, PYTHON_AT + 0x8000, "/usr/bin/python3.11");
	maker_module(&p->w, p->now++, EXTRA, EXTRA_AT, EXTRA_AT + 0x8000, "/mine/build/ext.so");
	*state = p;
	return 0;
}

static void stop(struct play *p)
{
	if (p->run == NULL)
		return;
	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	p->run = NULL;
}

static int end(void **state)
{
	struct play *p = *state;

	stop(p);
	elf_cache_fini(&p->elves);
	maker_fini(&p->maker);
	strbuf_fini(&p->out);
	free(p);
	return 0;
}

static void open_replay(struct play *p, const char *raw, const char *packed)
{
	struct replay_setup setup = {.elves = &p->elves, .root = "/nowhere"};

	assert_int_equal(run_open(raw, packed, false, &p->run, NULL), 0);
	setup.run = p->run;
	assert_int_equal(replay_new(&setup, &p->replay), 0);
	analyses_init(&p->analyses, SESSION_LEAKS | SESSION_DECOMPOSE, true, p->replay);
	assert_int_equal(run_poll(p->run, 0, true), 0);
}

static void play_some(struct play *p, uint64_t most)
{
	struct trace_event event;

	while (most-- > 0 && run_next(p->run, &event))
		assert_int_equal(replay_event(p->replay, &event), 0);
}

static void play(struct play *p)
{
	open_replay(p, p->maker.path, NULL);
	play_some(p, UINT64_MAX);
}

/* A stack of these return addresses and Python functions (from 1); the replay gives it the same number. */
static uint32_t stack(struct play *p, const uint64_t *addresses, uint32_t count,
		      const uint32_t *codes, uint32_t code_count)
{
	uint64_t words[32];
	uint32_t i;

	for (i = 0; i < count; i++)
		words[i] = addresses[i];
	for (i = 0; i < code_count; i++)
		words[count + i] = codes[i];
	p->stacks++;
	MAKER_VARIABLE(&p->w, p->now++, words, (count + code_count) * 8, stack_def, .id = p->stacks,
		       .c_frames = count, .python_frames = code_count);
	return p->stacks;
}

static uint32_t code(struct play *p, const char *file, const char *function, uint32_t line)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "%s%s", file, function);
	maker_code(&p->w, p->now++, ++p->codes, text, (uint32_t)strlen(file), line);
	return p->codes;
}

static uint32_t number_of(struct stacks *stacks, uint64_t address, uint64_t module)
{
	uint32_t number;

	assert_int_equal(stacks_number(stacks, &(struct frame){address, module}, &number), 0);
	return number;
}

/* The lines of a return address, of which nothing is known yet. */
static void add_lines(struct play *p, uint64_t address, uint64_t module,
		      const struct lines_frame *frames, size_t count, bool cut)
{
	struct stacks *stacks = &p->replay->definitions.stacks;
	uint32_t number = number_of(stacks, address, module);

	assert_int_equal(
		frame_lines_add(&stacks->lines, &stacks->frames[number].lines, frames, count, cut),
		0);
}

/* What debug information says of a return address. */
static void line(struct play *p, uint64_t address, uint64_t module, const char *function,
		 const char *file, uint32_t number)
{
	struct lines_frame frame = {.function = function, .file = file, .line = number};

	add_lines(p, address, module, &frame, 1, false);
}

static const char *shown(struct play *p, uint32_t number)
{
	strbuf_reset(&p->out);
	(void)site_line(p->replay, number, &p->out);
	return strbuf_str(&p->out);
}

/* ---- whose code ---- */

static void modules_belong_to_whom_they_belong(void **state)
{
	static const struct {
		const char *path;
		enum origin origin;
	} expected[] = {
		{"/mine/train", ORIGIN_USER},
		{"/mine/lib/libmine.so", ORIGIN_USER},
		{"/usr/local/lib/libmine.so.2", ORIGIN_USER},
		{"/mine/libtorchless.so", ORIGIN_USER},
		{"/mine/libcudamatrix.so", ORIGIN_USER},
		{"/opt/libascendcl.so", ORIGIN_RUNTIME},
		{"/usr/local/Ascend/latest/lib64/libanything.so", ORIGIN_RUNTIME},
		{"/usr/lib/x86_64-linux-gnu/libcuda.so.1", ORIGIN_RUNTIME},
		{"/x/libcudart.so.12", ORIGIN_RUNTIME},
		{"/x/libc10_npu.so", ORIGIN_FRAMEWORK},
		{"/x/libtorch_python.so", ORIGIN_FRAMEWORK},
		{"/v/lib/python3.11/site-packages/fancy/_c.so", ORIGIN_FRAMEWORK},
		{"/usr/lib/python3.11/lib-dynload/_ctypes.so", ORIGIN_STANDARD},
		{"/lib/x86_64-linux-gnu/libc.so.6", ORIGIN_STANDARD},
		{"/usr/lib/aarch64-linux-gnu/libglib-2.0.so.0", ORIGIN_STANDARD},
		{"/opt/conda/lib/libstdc++.so.6", ORIGIN_STANDARD},
		{"/opt/conda/bin/python3.11", ORIGIN_INTERPRETER},
		{"/usr/lib/libpython3.12.so.1.0", ORIGIN_INTERPRETER},
		{"/opt/msmemscope/lib64/libascend_kernel_hook.so", ORIGIN_TOOL},
	};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(expected); i++) {
		if (origin_of_module(expected[i].path) != expected[i].origin)
			fail_msg("%s: %d", expected[i].path, origin_of_module(expected[i].path));
	}
}

static void what_headers_bring_is_not_the_users(void **state)
{
	(void)state;
	assert_int_equal(origin_of_function("/mine/train", "std::vector::push_back", NULL),
			 ORIGIN_STANDARD);
	assert_int_equal(
		origin_of_function("/mine/train", "make", "/usr/include/c++/12/bits/stl_algo.h"),
		ORIGIN_STANDARD);
	assert_int_equal(origin_of_function("/mine/train", "at::empty", NULL), ORIGIN_FRAMEWORK);
	assert_int_equal(origin_of_function("/mine/train", "attic::empty", "/mine/a.cpp"),
			 ORIGIN_USER);
	assert_int_equal(origin_of_function("/mine/train", NULL, NULL), ORIGIN_USER);
	assert_int_equal(origin_of_function("/x/libtorch.so", "mine", "/mine/a.cpp"),
			 ORIGIN_FRAMEWORK);
	assert_int_equal(origin_of_script("/mine/train.py"), ORIGIN_USER);
	assert_int_equal(origin_of_script("<string>"), ORIGIN_USER);
	assert_int_equal(origin_of_script("<frozen importlib._bootstrap>"), ORIGIN_STANDARD);
	assert_int_equal(origin_of_script("/usr/lib/python3.11/json/decoder.py"), ORIGIN_STANDARD);
	assert_int_equal(origin_of_script("/v/lib/python3.11/site-packages/torch/nn/f.py"),
			 ORIGIN_FRAMEWORK);
}

/* ---- places ---- */

/* One line of the program is one place, whatever instructions it has; in libraries of others the function is enough. */
static void instructions_of_one_line_are_one_place(void **state)
{
	struct play *p = *state;
	const uint64_t a[] = {RUNTIME_AT + 0x10, APP_AT + 0x10};
	const uint64_t b[] = {RUNTIME_AT + 0x20, APP_AT + 0x90};
	const uint64_t other_line[] = {RUNTIME_AT + 0x10, APP_AT + 0x30};
	const uint64_t no_line[] = {RUNTIME_AT + 0x10, APP_AT + 0x40};
	const uint64_t no_line_either[] = {RUNTIME_AT + 0x20, APP_AT + 0x50};
	uint32_t s[5];

	s[0] = stack(p, a, 2, NULL, 0);
	s[1] = stack(p, b, 2, NULL, 0);
	s[2] = stack(p, other_line, 2, NULL, 0);
	s[3] = stack(p, no_line, 2, NULL, 0);
	s[4] = stack(p, no_line_either, 2, NULL, 0);
	play(p);
	line(p, RUNTIME_AT + 0x10, RUNTIME, "aclrtMalloc", NULL, 0);
	line(p, RUNTIME_AT + 0x20, RUNTIME, "aclrtMalloc", NULL, 0);
	line(p, APP_AT + 0x10, APP, "grow(int)", "/src/leaky.cpp", 41);
	line(p, APP_AT + 0x90, APP, "grow(int)", "/src/leaky.cpp", 41);
	line(p, APP_AT + 0x30, APP, "grow(int)", "/src/leaky.cpp", 42);
	line(p, APP_AT + 0x40, APP, "grow(int)", NULL, 0);
	line(p, APP_AT + 0x50, APP, "grow(int)", NULL, 0);
	assert_int_equal(site_of(p->replay, s[0]), s[0]);
	assert_int_equal(site_of(p->replay, s[1]), s[0]);
	assert_int_equal(site_of(p->replay, s[2]), s[2]);
	assert_int_equal(site_of(p->replay, s[3]), s[3]);
	assert_int_equal(site_of(p->replay, s[4]), s[4]);
	assert_int_equal(site_of(p->replay, 0), 0);
	assert_int_equal(site_of(p->replay, 99), 0);
	assert_string_equal(shown(p, s[1]), "grow (leaky.cpp:41)");
	assert_string_equal(shown(p, s[3]), "grow (train)");
	assert_string_equal(shown(p, 0), "");
}

/* A library that is loaded again lies elsewhere, and is the same code. */
static void code_that_is_loaded_twice_is_one_place(void **state)
{
	struct play *p = *state;
	const uint64_t first[] = {EXTRA_AT + 0x10}, second[] = {EXTRA_AT + 0x10010};
	uint32_t a = stack(p, first, 1, NULL, 0), b;

	MAKER_EVENT(&p->w, p->now++, 0, module_unload, .id = EXTRA);
	maker_module(&p->w, p->now++, 9, EXTRA_AT + 0x10000, EXTRA_AT + 0x18000,
		     "/mine/build/ext.so");
	b = stack(p, second, 1, NULL, 0);
	play(p);
	assert_int_equal(site_of(p->replay, b), a);
	assert_string_equal(shown(p, b), "ext.so+0xf");
}

static void inlined_functions_are_frames(void **state)
{
	struct play *p = *state;
	const uint64_t frames[] = {RUNTIME_AT + 0x10, APP_AT + 0x10, APP_AT + 0x20};
	const struct lines_frame inlined[] = {
		{"std::allocator<char>::allocate(unsigned long)", "/usr/include/c++/12/a.h", 9},
		{"take<float>(int)", "/src/pool.h", 12},
		{"shop::Table<float, 3>::grow(Arena&)", "/src/table.cpp", 21},
	};
	uint32_t s = stack(p, frames, 3, NULL, 0);
	struct json json;

	play(p);
	line(p, RUNTIME_AT + 0x10, RUNTIME, "aclrtMalloc", NULL, 0);
	line(p, APP_AT + 0x20, APP, "main", "/src/main.cpp", 5);
	add_lines(p, APP_AT + 0x10, APP, inlined, 3, false);
	assert_string_equal(shown(p, s),
			    "shop::Table<...>::grow (table.cpp:21) -> take<...> (pool.h:12)");
	strbuf_reset(&p->out);
	site_text(p->replay, s, 3, &p->out);
	assert_string_equal(strbuf_str(&p->out), "    main (/src/main.cpp:5)\n"
						 "    shop::Table<...>::grow (/src/table.cpp:21)\n"
						 "    take<...> (/src/pool.h:12)\n");
	/* The innermost frames are those that say most. */
	strbuf_reset(&p->out);
	site_text(p->replay, s, 1, &p->out);
	assert_string_equal(strbuf_str(&p->out), "    take<...> (/src/pool.h:12)\n");
	strbuf_reset(&p->out);
	site_text(p->replay, s, SITE_ALL, &p->out);
	assert_string_equal(strbuf_str(&p->out),
			    "    main (/src/main.cpp:5)\n"
			    "    shop::Table<...>::grow (/src/table.cpp:21)\n"
			    "    take<...> (/src/pool.h:12)\n"
			    "    std::allocator<...>::allocate (/usr/include/c++/12/a.h:9)\n"
			    "    aclrtMalloc (/usr/local/Ascend/lib64/libascendcl.so)\n");
	strbuf_reset(&p->out);
	json_begin(&json, &p->out);
	json_object(&json, NULL);
	site_json(p->replay, s, "frames", &json);
	json_end(&json);
	assert_non_null(strstr(strbuf_str(&p->out), "take<float>(int)"));
	assert_non_null(strstr(strbuf_str(&p->out), "\"line\":21"));
	assert_non_null(strstr(strbuf_str(&p->out), "\"user\":true"));
}

/* C frames inside the interpreter belong below the script's, its own above. */
static void a_script_stands_before_its_interpreter(void **state)
{
	struct play *p = *state;
	static const char packages[] = "/opt/venv/lib/python3.11/site-packages/torch/";
	const uint64_t frames[] = {TORCH_AT + 0x10, EXTRA_AT + 0x10, PYTHON_AT + 0x10,
				   APP_AT + 0x10};
	const uint64_t torch_only[] = {TORCH_AT + 0x10, PYTHON_AT + 0x10};
	char file[100];
	uint32_t codes[5], s[6];

	(void)snprintf(file, sizeof(file), "%snn/functional.py", packages);
	codes[0] = code(p, file, "relu", 7);
	(void)snprintf(file, sizeof(file), "%snn/modules/module.py", packages);
	codes[1] = code(p, file, "Module._call_impl", 8);
	codes[2] = code(p, "/mine/model.py", "forward", 41);
	codes[3] = codes[1];
	codes[4] = code(p, "/mine/train.py", "<module>", 9);
	s[0] = stack(p, NULL, 0, codes, 5);
	s[1] = stack(p, torch_only, 2, codes, 5);
	s[2] = stack(p, frames, 4, codes, 5);
	s[3] = stack(p, NULL, 0, codes + 1, 4);
	s[4] = stack(p, torch_only, 2, codes + 4, 1);
	s[5] = stack(p, NULL, 0, codes, 2);
	play(p);
	line(p, TORCH_AT + 0x10, TORCH, "at::native::relu(at::Tensor const&)", NULL, 0);
	line(p, EXTRA_AT + 0x10, EXTRA, "mine::cache()", "/mine/ext.cpp", 3);
	line(p, PYTHON_AT + 0x10, PYTHON, "_PyEval_EvalFrameDefault", NULL, 0);
	line(p, APP_AT + 0x10, APP, "main", NULL, 0);
	assert_string_equal(shown(p, s[0]), "train.py:9 -> model.py:41 forward -> "
					    "torch.nn.functional.relu");
	assert_string_equal(shown(p, s[1]), shown(p, s[0]));
	/* The user's own extension is the user's code. */
	assert_string_equal(shown(p, s[2]),
			    "model.py:41 forward -> mine::cache (ext.cpp:3) -> at::native::relu");
	/* What only calls on is named where there is nothing else. */
	assert_string_equal(shown(p, s[3]),
			    "train.py:9 -> model.py:41 forward -> Module._call_impl");
	assert_string_equal(shown(p, s[4]), "train.py:9");
	assert_string_equal(shown(p, s[5]), "Module._call_impl");
	strbuf_reset(&p->out);
	site_text(p->replay, s[2], 9, &p->out);
	assert_string_equal(strbuf_str(&p->out), "    main (/mine/train)\n"
						 "    /mine/train.py(9): <module>\n"
						 "    /mine/model.py(41): forward\n"
						 "    mine::cache (/mine/ext.cpp:3)\n");
	assert_int_not_equal(site_of(p->replay, s[0]), site_of(p->replay, s[1]));
}

/* Memory snapshots of PyTorch have C frames among those of Python, by their names; these come from an H200. */
static void the_recorder_of_a_snapshot_is_nobody(void **state)
{
	struct play *p = *state;
	static const char *const recorder[][2] = {
		{"torch::unwind::unwind()", "??"},
		{"torch::CapturedTraceback::gather(bool, bool, bool)", "??"},
		{"torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp"},
		{"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned "
		 "long, CUstream_st*)",
		 "CUDACachingAllocator.cpp"},
		{"at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)", ""},
	};
	static const char *const backward[] = {
		"at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&)",
		"torch::autograd::VariableType::(anonymous namespace)::mm(c10::DispatchKeySet)",
		"at::_ops::mm::call(at::Tensor const&, at::Tensor const&)",
		"torch::autograd::generated::AddmmBackward0_apply_functional(std::vector<int>&&)",
		"torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
	};
	static const char *const engine[] = {
		"torch::autograd::Node::operator()(std::vector<at::Tensor>&&)",
		"torch::autograd::Engine::thread_main(std::shared_ptr<int> const&)",
		"torch::autograd::python::PythonEngine::thread_init(int)",
		"pthread_condattr_setpshared",
		"__clone",
	};
	static const char *const call[] = {"at::_ops::linear::call(at::Tensor const&)",
					   "torch::autograd::THPVariable_linear(_object*)",
					   "PyObject_Vectorcall"};
	uint32_t r[5], b[5], e[5], c[3], own, workspace, codes[20], s[6];
	size_t i;

	for (i = 0; i < 5; i++) {
		r[i] = code(p, recorder[i][1], recorder[i][0], 0);
		b[i] = code(p, "??", backward[i], 0);
		e[i] = code(p, "??", engine[i], 0);
	}
	for (i = 0; i < 3; i++)
		c[i] = code(p, "python_nn_functions.cpp", call[i], 0);
	workspace = code(p, "", "at::cuda::getCurrentCUDABlasHandle()", 0);
	own = code(p, "/mine/step.cpp", "mine::Step::run(int)", 12);
	/* Called by a script: its lines count, also those that came after the interpreter's own. */
	memcpy(codes, r, sizeof(r));
	memcpy(codes + 5, c, sizeof(c));
	codes[8] = code(p, "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py",
			"linear", 7);
	codes[9] = code(p, "??", "_PyEval_EvalFrameDefault", 0);
	codes[10] = code(p, "??", "_start", 0);
	codes[11] = code(p, "/mine/model.py", "forward", 41);
	s[0] = stack(p, NULL, 0, codes, 12);
	/* On a thread of autograd. */
	memcpy(codes + 5, b, sizeof(b));
	memcpy(codes + 10, e, sizeof(e));
	s[1] = stack(p, NULL, 0, codes, 15);
	/* There, and no operator; nor a node. */
	codes[5] = workspace;
	codes[6] = b[4];
	memcpy(codes + 7, e, sizeof(e));
	s[2] = stack(p, NULL, 0, codes, 12);
	memcpy(codes + 6, e, sizeof(e));
	s[3] = stack(p, NULL, 0, codes, 11);
	/* A program of C++ has lines of its own. */
	codes[5] = c[0];
	codes[6] = own;
	s[4] = stack(p, NULL, 0, codes, 7);
	s[5] = stack(p, NULL, 0, codes, 3);
	play(p);
	assert_string_equal(shown(p, s[0]), "model.py:41 forward -> torch.nn.functional.linear");
	assert_string_equal(shown(p, s[1]), "AddmmBackward0 -> aten::mm");
	assert_string_equal(shown(p, s[2]), "AddmmBackward0");
	assert_string_equal(shown(p, s[3]), "at::cuda::getCurrentCUDABlasHandle");
	assert_string_equal(shown(p, s[4]), "mine::Step::run (step.cpp:12) -> aten::linear");
	assert_string_equal(shown(p, s[5]), "torch::unwind::unwind");
	strbuf_reset(&p->out);
	site_text(p->replay, s[2], SITE_ALL, &p->out);
	assert_null(strstr(strbuf_str(&p->out), "torch::unwind"));
	assert_non_null(strstr(strbuf_str(&p->out), "at::detail::empty_cuda"));
}

static void frames_of_c_are_told_from_those_of_python(void **state)
{
	(void)state;
	assert_true(origin_is_native("cfunction_call", "??"));
	assert_true(origin_is_native("take", ""));
	assert_true(origin_is_native("take", "/usr/local/src/python-3.11/Objects/call.c"));
	assert_true(origin_is_native("take", "/opt/lib/libtorch_cuda.so"));
	assert_true(origin_is_native("take", "/opt/lib/libcudart.so.12"));
	assert_true(origin_is_native("at::empty()", "model.py"));
	assert_false(origin_is_native("forward", "/mine/model.py"));
	assert_false(origin_is_native("<module>", "<string>"));
	assert_false(origin_is_native("forward", "<eval_with_key>.7"));
	assert_false(origin_is_native("Net.forward.<locals>.inner", "/tmp/ipykernel_7/12.py"));
	assert_false(origin_is_native("run", "script"));
	assert_false(origin_is_native("", ""));
}

/* ---- names in a document ---- */

static const char *named(const struct site_names *names, struct play *p, uint32_t number)
{
	const char *name = site_name(names, p->replay, number);

	assert_non_null(name);
	return name;
}

/* Where two call sites would read the same, each shows the innermost frame in which they differ. */
static void names_show_what_tells_call_sites_apart(void **state)
{
	struct play *p = *state;
	static const char packages[] = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/";
	struct site_names names = {0};
	uint32_t main_, train, evaluate, net, other, sequential, linear, gelu, inner, s[7], i;
	char file[100];

	(void)snprintf(file, sizeof(file), "%scontainer.py", packages);
	sequential = code(p, file, "Sequential.forward", 5);
	(void)snprintf(file, sizeof(file), "%slinear.py", packages);
	linear = code(p, file, "Linear.forward", 6);
	inner = code(p, file, "Linear.forward", 7);
	(void)snprintf(file, sizeof(file), "%sactivation.py", packages);
	gelu = code(p, file, "GELU.forward", 8);
	main_ = code(p, "/mine/train.py", "<module>", 17);
	net = code(p, "/mine/net.py", "Net.forward", 9);
	other = code(p, "/mine/net.py", "Block.forward", 12);
	train = code(p, "/mine/train.py", "train", 31);
	evaluate = code(p, "/mine/train.py", "evaluate", 41);
	s[0] = stack(p, NULL, 0, (uint32_t[]){linear, sequential, main_}, 3);
	s[1] = stack(p, NULL, 0, (uint32_t[]){gelu, sequential, main_}, 3);
	/* Beyond the caller. */
	s[2] = stack(p, NULL, 0, (uint32_t[]){linear, net, other, train, main_}, 5);
	s[3] = stack(p, NULL, 0, (uint32_t[]){linear, net, other, evaluate, main_}, 5);
	/* Only lines of a framework differ: nobody could tell them apart. */
	s[4] = stack(p, NULL, 0, (uint32_t[]){linear, evaluate}, 2);
	s[5] = stack(p, NULL, 0, (uint32_t[]){inner, evaluate}, 2);
	/* Alone, a name stays short. */
	s[6] = stack(p, NULL, 0, (uint32_t[]){gelu, linear, train, main_}, 4);
	play(p);
	for (i = 0; i < MSCOPE_COUNT(s); i++)
		assert_int_equal(site_names_add(&names, p->replay, s[i]), 0);
	assert_int_equal(site_names_settle(&names, p->replay), 0);
	assert_string_equal(named(&names, p, s[0]),
			    "train.py:17 -> Sequential.forward -> Linear.forward");
	assert_string_equal(named(&names, p, s[1]),
			    "train.py:17 -> Sequential.forward -> GELU.forward");
	assert_string_equal(named(&names, p, s[2]),
			    "train.py:31 train -> net.py:12 Block.forward -> "
			    "net.py:9 Net.forward -> Linear.forward");
	assert_string_equal(named(&names, p, s[3]),
			    "train.py:41 evaluate -> net.py:12 Block.forward -> "
			    "net.py:9 Net.forward -> Linear.forward");
	assert_string_equal(named(&names, p, s[4]), "train.py:41 evaluate -> Linear.forward");
	assert_string_equal(named(&names, p, s[5]), named(&names, p, s[4]));
	assert_string_equal(named(&names, p, s[6]),
			    "train.py:17 -> train.py:31 train -> Linear.forward");
	assert_null(site_name(&names, p->replay, 0));
	site_names_fini(&names);
}

/* ---- in a trace ---- */

static int join(void *arg, const struct strbuf *part)
{
	strbuf_add(arg, part->data, part->length);
	return 0;
}

static void lines_survive_in_the_trace(void **state)
{
	struct play *p = *state;
	const uint64_t frames[] = {APP_AT + 0x10, APP_AT + 0x20, 0x99};
	uint32_t s = stack(p, frames, 3, NULL, 0);
	struct strbuf saved = {0};
	struct stacks loaded;
	struct modules modules;
	struct frame_line *lines;
	uint32_t number;
	size_t count, cut, i;

	play(p);
	line(p, APP_AT + 0x10, APP, "grow(int)", "/src/a.cpp", 41);
	line(p, APP_AT + 0x20, APP, "main", "/src/a.cpp", 50);
	assert_int_equal(site_of(p->replay, s), s);
	assert_int_equal(replay_save_frames(p->replay, join, &saved), 0);
	modules_init(&modules, &p->elves);
	stacks_init(&loaded, &modules, NULL);
	stacks_load(&loaded, saved.data, saved.length);
	number = number_of(&loaded, APP_AT + 0x10, APP);
	assert_string_equal(stacks_frame_text(&loaded, number), "/mine/train(+0x10) [0x10010]");
	lines = stacks_lines(&loaded, number, &count);
	assert_int_equal(count, 1);
	assert_int_equal(lines->line, 41);
	assert_string_equal(frame_lines_text(&loaded.lines, lines->function), "grow(int)");
	assert_string_equal(frame_lines_text(&loaded.lines, lines->file), "/src/a.cpp");
	stacks_fini(&loaded);
	/* Any damage costs lines and nothing else. */
	for (cut = 0; cut < saved.length; cut++) {
		stacks_init(&loaded, &modules, NULL);
		stacks_load(&loaded, saved.data, cut);
		stacks_fini(&loaded);
		for (i = 1; i < 256; i += 77) {
			saved.data[cut] = (char)(saved.data[cut] ^ (char)i);
			stacks_init(&loaded, &modules, NULL);
			stacks_load(&loaded, saved.data, saved.length);
			number = number_of(&loaded, APP_AT + 0x10, APP);
			lines = stacks_lines(&loaded, number, &count);
			if (lines != NULL) {
				(void)frame_lines_text(&loaded.lines, lines->function);
				(void)frame_lines_text(&loaded.lines, lines->file);
			}
			stacks_fini(&loaded);
			saved.data[cut] = (char)(saved.data[cut] ^ (char)i);
		}
	}
	modules_fini(&modules);
	strbuf_fini(&saved);
}

/* What there was no time for is read from the trace's own files when it is shown another time. */
static void lines_that_were_cut_are_not_in_the_trace(void **state)
{
	struct play *p = *state;
	const uint64_t frames[] = {APP_AT + 0x10};
	const struct lines_frame name = {.function = "grow(int)"};
	uint32_t number;
	struct strbuf saved = {0};
	struct modules modules;
	struct stacks loaded;
	uint32_t s = stack(p, frames, 1, NULL, 0);

	play(p);
	add_lines(p, APP_AT + 0x10, APP, &name, 1, true);
	assert_string_equal(shown(p, s), "grow (train)");
	assert_int_equal(replay_save_frames(p->replay, join, &saved), 0);
	modules_init(&modules, &p->elves);
	stacks_init(&loaded, &modules, NULL);
	stacks_load(&loaded, saved.data, saved.length);
	number = number_of(&loaded, APP_AT + 0x10, APP);
	assert_false(loaded.frames[number].lines.known);
	assert_string_equal(stacks_frame_text(&loaded, number), "/mine/train(+0x10) [0x10010]");
	stacks_fini(&loaded);
	modules_fini(&modules);
	strbuf_fini(&saved);
}

/* Traces of versions before have texts alone. */
static void a_trace_without_lines_has_its_symbols(void **state)
{
	struct play *p = *state;
	static const char text[] = "/mine/train(_Z4growi+0x1f) [0x10010]";
	const uint64_t head[] = {APP, APP_AT + 0x10, sizeof(text) - 1}, frames[] = {APP_AT + 0x10};
	struct strbuf saved = {0};
	uint32_t s = stack(p, frames, 1, NULL, 0);

	strbuf_add(&saved, head, sizeof(head));
	strbuf_add_str(&saved, text);
	play(p);
	stacks_load(&p->replay->definitions.stacks, saved.data, saved.length);
	assert_string_equal(shown(p, s), "_Z4growi (train)");
	strbuf_fini(&saved);
}

/* ---- the peak ---- */

#define BLOCKS_MAX 3000u
#define STACKS	   6u

struct model_block {
	uint32_t context, stack, owner;
	uint64_t size;
	bool alive;
	bool at_peak[4]; /* of its context */
};

struct model {
	struct model_block blocks[BLOCKS_MAX];
	uint32_t count;
	uint64_t live[4], peak[4], peak_ns[4];
};

static uint64_t random_state;

static uint32_t random_below(uint32_t bound)
{
	return (uint32_t)(unit_random(&random_state) % bound);
}

static void model_take(struct play *p, struct model *m)
{
	struct model_block *block = &m->blocks[m->count];
	uint32_t context = 1 + random_below(3), i;

	*block = (struct model_block){.context = context,
				      .stack = random_below(STACKS),
				      .size = 64 + random_below(4000),
				      .alive = true};
	maker_alloc(&p->w, p->now, context, UINT64_C(0x100000) * ++m->count, block->size,
		    block->stack);
	m->live[context] += block->size;
	if (m->live[context] > m->peak[context]) {
		m->peak[context] = m->live[context];
		m->peak_ns[context] = p->now;
		for (i = 0; i < m->count; i++) {
			if (m->blocks[i].context == context)
				m->blocks[i].at_peak[context] = m->blocks[i].alive;
		}
	}
	p->now++;
}

static void model_give(struct play *p, struct model *m)
{
	uint32_t i = random_below(m->count);
	struct model_block *block = &m->blocks[i];

	if (!block->alive)
		return;
	maker_free(&p->w, p->now++, block->context, UINT64_C(0x100000) * (i + 1));
	if (random_below(5) == 0) {
		/* The driver refused: nothing has happened. */
		maker_undo(&p->w, p->now++, block->context, UINT64_C(0x100000) * (i + 1));
		return;
	}
	block->alive = false;
	m->live[block->context] -= block->size;
}

/* Labels a block, also one that lived at a peak that is over. */
static void model_label(struct play *p, struct model *m)
{
	static const char *const labels[] = {"model@buffer@one", "model@buffer@two"};
	uint32_t i = random_below(m->count), which = random_below(2);

	if (!m->blocks[i].alive || m->blocks[i].context == HAL)
		return;
	maker_text(&p->w, p->now++, ++p->texts, labels[which]);
	MAKER_EVENT(&p->w, p->now++, m->blocks[i].context, label,
		    .address = UINT64_C(0x100000) * (i + 1), .text = p->texts, .kind = LABEL_MODEL);
	m->blocks[i].owner = which + 1;
}

/* What the model says of a place; it is taken out of the model. */
static struct peak_place model_place(struct model *m, uint32_t context, uint32_t stack_of,
				     uint32_t owner, uint8_t class_of)
{
	struct peak_place place = {0};
	uint32_t i;

	for (i = 0; i < m->count; i++) {
		struct model_block *block = &m->blocks[i];
		uint8_t class_here =
			block->stack != 0 ? 0 : (uint8_t)(64 - __builtin_clzll(block->size));

		/* Stacks 1 and 2 are the same lines. */
		if (!block->at_peak[context] ||
		    (block->stack == 2 ? 1 : block->stack) != stack_of || block->owner != owner ||
		    class_here != class_of)
			continue;
		place.bytes += block->size;
		place.blocks++;
		block->at_peak[context] = false;
	}
	return place;
}

static uint32_t owner_of(const struct replay *replay, uint32_t owner)
{
	const char *text = replay_owner_text(replay, owner);

	return strstr(text, "@one") != NULL ? 1 : strstr(text, "@two") != NULL ? 2 : 0;
}

/* Fewer places: the largest are the same, and the rest of each owner has the sum of the others. */
static void compare_with_rest(struct play *p, const struct peak *whole, size_t most)
{
	struct peaks peaks;
	const struct peak *peak = NULL;
	size_t i, k;

	assert_int_equal(peaks_find(&p->analyses, p->replay, most, &peaks), 0);
	for (i = 0; i < peaks.count; i++) {
		if (peaks.all[i].pool == whole->pool && peaks.all[i].device == whole->device)
			peak = &peaks.all[i];
	}
	assert_non_null(peak);
	assert_int_equal(peak->bytes, whole->bytes);
	assert_int_equal(peak->blocks, whole->blocks);
	for (i = 0; i < peak->place_count; i++) {
		const struct peak_place *place = &peak->places[i];
		struct peak_place left = {0};

		if (i < most) {
			assert_memory_equal(place, &whole->places[i], sizeof(*place));
			continue;
		}
		for (k = most; k < whole->place_count; k++) {
			if (whole->places[k].owner != place->owner)
				continue;
			left.bytes += whole->places[k].bytes;
			left.blocks += whole->places[k].blocks;
			left.call_sites++;
		}
		assert_int_equal(place->bytes, left.bytes);
		assert_int_equal(place->blocks, left.blocks);
		assert_int_equal(place->call_sites, left.call_sites);
	}
	peaks_fini(&peaks);
}

static void compare_with_model(struct play *p, struct model *m)
{
	struct peaks peaks;
	size_t i, k;
	uint32_t left = 0;

	assert_int_equal(peaks_find(&p->analyses, p->replay, SIZE_MAX, &peaks), 0);
	assert_int_equal(peaks.count, 3);
	for (i = 0; i < peaks.count; i++) {
		const struct peak *peak = &peaks.all[i];
		uint32_t context = peak->pool == POOL_hal ? HAL : peak->device == 1 ? PTA_1 : PTA;
		uint64_t sum = 0;

		assert_int_equal(peak->bytes, m->peak[context]);
		assert_int_equal(peak->highest, m->peak[context]);
		assert_int_equal(peak->time_ns, m->peak_ns[context]);
		for (k = 0; k < peak->place_count; k++) {
			const struct peak_place *place = &peak->places[k];
			struct peak_place truth =
				model_place(m, context, place->site,
					    owner_of(p->replay, place->owner), place->size_class);

			assert_int_equal(place->bytes, truth.bytes);
			assert_int_equal(place->blocks, truth.blocks);
			assert_true(k == 0 || place->bytes <= peak->places[k - 1].bytes);
			sum += place->bytes;
		}
		assert_int_equal(sum, peak->bytes);
		compare_with_rest(p, peak, 1 + i);
	}
	for (i = 0; i < m->count; i++)
		left += m->blocks[i].at_peak[m->blocks[i].context];
	assert_int_equal(left, 0);
	peaks_fini(&peaks);
}

/* Random programs; each is also cut in the middle and read again from its checkpoint. */
static void the_peak_is_what_its_places_held(void **state)
{
	struct play *p = *state;
	struct model *m = calloc(1, sizeof(*m)), *copy = calloc(1, sizeof(*copy));
	uint32_t seed, i;
	char cut[300];

	(void)snprintf(cut, sizeof(cut), "%s/cut", unit_directory);
	for (seed = 1; seed <= 12; seed++) {
		struct pack_writer *pack = NULL;
		void *again;

		random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
		for (i = 1; i < STACKS; i++) {
			/* The first two go through instructions of one line. */
			const uint64_t frames[] = {APP_AT + 0x100 * (uint64_t)i};

			(void)stack(p, frames, 1, NULL, 0);
		}
		*m = (struct model){0};
		for (i = 0; i < 3; i++)
			model_take(p, m);
		while (m->count < 100 + seed * 40) {
			uint32_t what = random_below(16);

			if (what < 8)
				model_take(p, m);
			else if (what < 14)
				model_give(p, m);
			else
				model_label(p, m);
		}
		open_replay(p, p->maker.path, NULL);
		line(p, APP_AT + 0x100, APP, "grow", "/src/a.c", 1);
		line(p, APP_AT + 0x200, APP, "grow", "/src/a.c", 1);
		play_some(p, m->count / 2);
		assert_int_equal(pack_writer_open(cut, &pack, NULL), 0);
		assert_int_equal(replay_checkpoint(p->replay, cut, &pack, NULL), 0);
		play_some(p, UINT64_MAX);
		*copy = *m;
		compare_with_model(p, m);
		stop(p);
		pack_writer_close(pack);
		/* The raw chunks behind the checkpoint are read with it. */
		open_replay(p, p->maker.path, cut);
		line(p, APP_AT + 0x100, APP, "grow", "/src/a.c", 1);
		line(p, APP_AT + 0x200, APP, "grow", "/src/a.c", 1);
		play_some(p, UINT64_MAX);
		compare_with_model(p, copy);
		again = p;
		assert_int_equal(end(&again), 0);
		assert_int_equal(unlink(cut), 0);
		assert_int_equal(begin(&again), 0);
		*state = p = again;
	}
	free(m);
	free(copy);
}

/* Blocks from outside of windows are part of the peak, as one place. */
static void what_came_before_the_window_is_one_place(void **state)
{
	struct play *p = *state;
	const uint64_t frames[] = {APP_AT + 0x100};
	uint32_t s = stack(p, frames, 1, NULL, 0);
	struct peaks peaks;

	MAKER_EVENT(&p->w, p->now++, 0, state, .state = RECORDING_SHADOW);
	maker_alloc(&p->w, p->now++, PTA, 0x1000, 1000, 0);
	maker_alloc(&p->w, p->now++, PTA, 0x2000, 50, 0);
	MAKER_EVENT(&p->w, p->now++, 0, state, .state = RECORDING_ON);
	maker_alloc(&p->w, p->now++, PTA, 0x3000, 600, s);
	maker_free(&p->w, p->now++, PTA, 0x1000);
	play(p);
	assert_int_equal(peaks_find(&p->analyses, p->replay, SIZE_MAX, &peaks), 0);
	assert_int_equal(peaks.count, 1);
	assert_int_equal(peaks.all[0].bytes, 1650);
	assert_int_equal(peaks.all[0].place_count, 2);
	assert_true(peaks.all[0].places[0].outside);
	assert_int_equal(peaks.all[0].places[0].bytes, 1050);
	assert_int_equal(peaks.all[0].places[1].site, s);
	peaks_fini(&peaks);
}

/* Namespaces go before the function does, which is what a person looks for. */
static void a_long_qualified_name_keeps_its_function(void **state)
{
	struct stack_line line = {
		.function = "a_rather_long_company_namespace::inference_engine_runtime::"
			    "KeyValueCacheWithPrefixSharing<int>::decode(int)::"
			    "{lambda(unsigned long)#1}::operator()(unsigned long) const",
		.file = "/src/cache.cpp",
		.line = 15,
		.origin = ORIGIN_USER};
	struct strbuf out = {0};
	(void)state;

	site_frame(&line, &out);
	assert_non_null(strstr(strbuf_str(&out), "KeyValueCacheWithPrefixSharing<...>::decode"));
	assert_non_null(strstr(strbuf_str(&out), "::{lambda"));
	assert_null(strstr(strbuf_str(&out), "company"));
	assert_null(strstr(strbuf_str(&out), "...::"));
	strbuf_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_qualified_name_keeps_its_function),
		cmocka_unit_test(modules_belong_to_whom_they_belong),
		cmocka_unit_test(what_headers_bring_is_not_the_users),
		cmocka_unit_test_setup_teardown(instructions_of_one_line_are_one_place, begin, end),
		cmocka_unit_test_setup_teardown(code_that_is_loaded_twice_is_one_place, begin, end),
		cmocka_unit_test_setup_teardown(inlined_functions_are_frames, begin, end),
		cmocka_unit_test_setup_teardown(a_script_stands_before_its_interpreter, begin, end),
		cmocka_unit_test_setup_teardown(the_recorder_of_a_snapshot_is_nobody, begin, end),
		cmocka_unit_test_setup_teardown(frames_of_c_are_told_from_those_of_python, begin,
						end),
		cmocka_unit_test_setup_teardown(names_show_what_tells_call_sites_apart, begin, end),
		cmocka_unit_test_setup_teardown(lines_survive_in_the_trace, begin, end),
		cmocka_unit_test_setup_teardown(lines_that_were_cut_are_not_in_the_trace, begin,
						end),
		cmocka_unit_test_setup_teardown(a_trace_without_lines_has_its_symbols, begin, end),
		cmocka_unit_test_setup_teardown(the_peak_is_what_its_places_held, begin, end),
		cmocka_unit_test_setup_teardown(what_came_before_the_window_is_one_place, begin,
						end),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_empty_directory);
}
