/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record's context means: which pool, device and kind of request. The collector decodes the foreign interface once per
 * distinct context and writes a context_def; the engine never sees a foreign flag word it would have to understand.
 */
#ifndef MSCOPE_TRACE_CONTEXT_H
#define MSCOPE_TRACE_CONTEXT_H

#include "base/compiler.h"
#include "base/vendors.h"

/* A range named STEP_MESSAGE is a step; they count from 1. */
#define STEP_MESSAGE "step start"

/* So many steps that the program marks late count more than those of its optimizer (replay/steps.h). */
#define STEP_LATE_MARKS 3u

enum pool {
	POOL_UNKNOWN = 0,
#define POOL(number, name, event_type, meaning) POOL_##name = (number),
#include "trace/pools.def"
#undef POOL
	POOL_END
};

/* How a block was asked for; a free names the same kind, so that a handle never pairs with an address. */
enum block_kind {
	BLOCK_ALLOC = 0,  /* by address: halMemAlloc, cuMemAlloc */
	BLOCK_CREATE = 1, /* by handle, physical memory to be mapped: halMemCreate, cuMemCreate */
	/* Host memory of the program's own that was pinned: aclrtHostRegister. */
	BLOCK_REGISTER = 2,
	BLOCK_HANDLE = 3, /* a part of a pool, given back by a handle */
};

enum page_class {
	PAGE_UNKNOWN = 0,
	PAGE_NORMAL = 1,
	PAGE_HUGE = 2,
	PAGE_GIANT = 3,
};

/* Whose operators an `operation` or `access` record is about. */
enum layer {
	LAYER_ATEN = 1,	      /* operators of PyTorch */
	LAYER_ATB = 2,	      /* operators of Ascend Transformer Boost */
	LAYER_ATB_KERNEL = 3, /* kernels that its operators run */
	LAYER_END
};

enum operation_kind {
	OPERATION_BEGINS = 1,
	OPERATION_ENDED = 2,
};

enum access_kind {
	ACCESS_READ = 1,
	ACCESS_WRITE = 2,
	ACCESS_UNKNOWN = 3,
};

/* What a `call` record says. */
enum call_kind {
	CALL_ENTER = 1,	      /* Python function, code_def */
	CALL_LEAVE = 2,	      /* the innermost one that is open, by return or exception */
	CALL_C_ENTER = 3,     /* C function, text_def of its repr */
	CALL_C_LEAVE = 4,     /* the innermost open C function, by return or exception */
	CALL_RANGE_BEGIN = 5, /* range of the program's own, text_def */
	CALL_RANGE_END = 6,
	/* Python function that was open when tracing began, outermost first. */
	CALL_OPEN_AT_START = 7,
	CALL_STOP = 8,	       /* tracing of this thread ended; what is open stays without an end */
	CALL_MODULE_ENTER = 9, /* call of a torch module, text_def of "nn.Module: CLASS" */
	CALL_STOP_ALL = 10,    /* tracing of all threads ended */
};

/* What a `mark` record marks. */
enum mark_kind {
	MARK_AT = 1,
	MARK_RANGE_START = 2,
	MARK_RANGE_END = 3,
};

#define STREAM_NONE UINT32_MAX /* stream of a mark that has none */

/* What a `label` record labels. */
enum label_kind {
	LABEL_MODEL = 1,  /* the block at the address: a class of the model, such as model@weight */
	LABEL_TENSOR = 2, /* the block at the address: the user's own label */
	LABEL_PUSH = 3,	  /* what this thread allocates from here on, inside earlier labels */
	LABEL_POP = 4,	  /* until here; the newest label of that text */
	/* What this thread allocates from here on has this class of the model; a block's own class takes its place. */
	LABEL_CLASS_PUSH = 5,
	LABEL_CLASS_POP = 6, /* until here; ends what was entered inside it as well */
	/* The block at the address: which tensor of a model it is, or belongs to; "Model@path of the module@tensor", see replay/owners.h. */
	LABEL_LAYER = 7,
	LABEL_LAYER_PUSH = 8, /* what this thread allocates from here on is made by this module */
	LABEL_LAYER_POP = 9,  /* until here; ends what was entered inside it as well */
	/* Of the module whose forward pass this thread is in: "Model@path of the module@class@file:line of the call". */
	LABEL_MODULE = 10,
	/* "file:line" of the call that has set gradients to zero; the `graph` record of that follows. */
	LABEL_ZEROED = 11,
};

/* What a `graph` record says. A node is numbered as the framework does it: those that are made later have higher numbers. */
enum graph_kind {
	GRAPH_SAVED = 1,	/* a node saved the tensor for the backward pass */
	GRAPH_SAVED_RESULT = 2, /* the same, and the tensor is the result of its own operator */
	GRAPH_OPERATOR =
		3, /* an operator starts whose result gets a node; `number`: the next one after it */
	GRAPH_ENTER = 4, /* a module's forward pass starts; `number`: the next node */
	GRAPH_LEAVE = 5, /* it ended */
	/* The module that was entered last is given the tensor; `number`: its first dimension, 0: unknown. */
	GRAPH_TAKES = 6,
	GRAPH_GIVES = 7,    /* it gives the tensor */
	GRAPH_BACKWARD = 8, /* the backward pass runs a node; 0: it ended */
	GRAPH_AGAIN =
		9, /* a module's forward pass starts inside a backward pass: it is computed again */
	GRAPH_STATE = 10, /* the tensor is a state of an optimizer; `number`: bytes of an element */
	GRAPH_ADDS = 11,  /* the backward pass adds to this gradient, which the program had kept */
	GRAPH_ZEROED = 12, /* the program has set gradients to zero, or has dropped them */
	GRAPH_SAVED_BYTES =
		13, /* what was saved last is a part of its memory, or more than it: `number` bytes */
	/* The backward pass makes a sum of the tensor and another one, or, with `number` 1, puts something into it. PyTorch does that in place
	   if nothing else has the tensor, but not while a dispatch mode is there, such as ours. */
	GRAPH_SUMS = 14,
	/* No function of the program has the result of an operator any more; the graph has it still. */
	GRAPH_DROPPED = 15,
	/* The node that runs has computed its gradients, and PyTorch sums them up over what was broadcast; 0: it has not, it goes on. */
	GRAPH_SHRINKS = 16,
	/* The tensor is a weight's copy of another type, as autocast makes and keeps one of each weight. */
	GRAPH_CASTS = 17,
};

/* Bit of the number of a text that hardly comes twice: such a number means the latest text_def that has it. */
#define TEXT_ONCE	UINT32_C(0x80000000)
#define TEXT_ONCE_SLOTS 4u

/* How the program's own code ended; of an `ended` record. */
enum end_kind {
	END_NONE = 0,	     /* it has not, or there is no such record */
	END_MAIN = 1,	     /* main() returned */
	END_EXIT = 2,	     /* exit() was called */
	END_INTERPRETER = 3, /* the Python interpreter that runs the program begins to end */
	END_STOP = 4,	     /* stop() ended the last window; never in a record `ended` */
};

/* Flags of a `watch_dump` record. */
enum dump_flags {
	DUMP_IN_FILE = 1,  /* the bytes are in a file of their own */
	DUMP_AFTER = 2,	   /* the operator has ended, else it begins */
	DUMP_FIRST = 4,	   /* nothing was known of this memory before */
	DUMP_COMPARED = 8, /* the collector compared the bytes with those of the last dump */
	DUMP_HANDED = 16,  /* the kernel was handed an address in this memory */
	DUMP_NAMED = 32,   /* the program named it, by its address */
};

/* Flags of a `watch_seen` record. */
enum seen_flags {
	SEEN_START = 1, /* --watch named it as START */
	SEEN_END = 2,	/* and as END */
};

/* Which function an `oom` record says refused a request. */
enum oom_call {
	OOM_HAL_ALLOC = 1,   /* halMemAlloc */
	OOM_HAL_CREATE = 2,  /* halMemCreate */
	OOM_TORCH_CUDA = 3,  /* PyTorch's pool on CUDA, after it gave back its cache */
	OOM_TORCH_CPU = 4,   /* PyTorch's allocator of host memory */
	OOM_CUDA_DRIVER = 5, /* a call of CUDA's driver */
	OOM_TORCH_NPU = 6,   /* torch_npu's pool, by its own limit; the driver was not asked */
};

/* What a `driver_cost` record says that the driver took memory for. */
enum driver_cost {
	COST_CONTEXT = 1, /* a context came to be */
	COST_CODE = 2,	  /* a module or library of kernels was loaded */
	COST_GRAPH = 3,	  /* a graph was made ready to be launched */
	COSTS
};

/* Bit of the numbers that a part of the collector gives to texts by itself, apart from those of the writer's table. */
#define TEXT_OWNED UINT32_C(0x40000000)

/* What kind of memory of CUDA's driver a context is about: the topmost 8 bits of its flags. */
enum cuda_memory {
	CUDA_MEMORY_DEVICE = 1, /* cuMemAlloc */
	CUDA_MEMORY_PITCH = 2,	/* cuMemAllocPitch */
	CUDA_MEMORY_ASYNC =
		3, /* of a pool of the driver: cuMemAllocAsync, cuMemAllocFromPoolAsync */
	CUDA_MEMORY_MANAGED = 4,  /* cuMemAllocManaged */
	CUDA_MEMORY_ARRAY = 5,	  /* cuArrayCreate and the like, by handle */
	CUDA_MEMORY_PHYSICAL = 6, /* cuMemCreate on a device, by handle */
	CUDA_MEMORY_PHYSICAL_HOST = 7,
	CUDA_MEMORY_PINNED = 8,	    /* cuMemHostAlloc */
	CUDA_MEMORY_REGISTERED = 9, /* cuMemHostRegister */
};
#define CUDA_FLAGS_MEMORY(flags) ((uint32_t)((flags) >> 56))
/* Number of the CUDA context with which it ends at the latest; 0: none. */
#define CUDA_FLAGS_CONTEXT(flags) ((uint32_t)(flags))

/* What a `driver_source` record says about calls of a driver. */
enum driver_source {
	/* They are recorded from here on, and the program may have made some before. */
	DRIVER_SOURCE_BEGINS = 1,
	DRIVER_SOURCE_YIELDS = 2,      /* not any more: another tool took its place */
	DRIVER_SOURCE_TIMES_YIELD = 3, /* calls are; another tool takes the times of kernels */
};

/* What a `pool_segment` record says. */
enum segment_kind {
	SEGMENT_ALLOC = 1,  /* the driver gave it */
	SEGMENT_FREE = 2,   /* it goes back */
	SEGMENT_MAP = 3,    /* memory was mapped into a segment that can grow */
	SEGMENT_UNMAP = 4,  /* and is taken out of it: of one mapping or of several, or a part */
	SEGMENT_EXISTS = 5, /* it is older than the trace */
};

/* What a `pool_block` record says. */
enum pool_block_kind {
	POOL_BLOCK_WAITS = 1,  /* the program has freed it, and other streams still use it */
	POOL_BLOCK_DONE = 2,   /* the pool may hand it out again */
	POOL_BLOCK_EXISTS = 3, /* of a block that the trace has: it is allocated */
};

/* What a `pool_source` record says. */
enum pool_source {
	POOL_SOURCE_BEGINS = 1,	 /* everything of the pool is known from its first segment on */
	POOL_SOURCE_LATE = 2,	 /* the pool had segments before: they follow, or stay unknown */
	POOL_SOURCE_STRANGE = 3, /* what it tells is not understood, and not used */
	POOL_SOURCE_DRIVER = 4,	 /* in a checkpoint: calls of the driver are recorded beside it */
	POOL_SOURCE_UNSEEN =
		5, /* of no context: a framework has a pool that tells nothing; its blocks are not recorded */
};

/* What a `pool_fact` record says. */
enum pool_fact {
	POOL_FACT_RELEASE = 1,	   /* version of the framework: major << 32 | minor << 16 | patch */
	POOL_FACT_SETTINGS = 2,	   /* `text`: settings of the allocator that the environment gave */
	POOL_FACT_CHANGED = 3,	   /* `text`: settings that a call of the program made */
	POOL_FACT_FRACTION = 4,	   /* the pool may reserve this share of the device */
	POOL_FACT_CAPACITY = 5,	   /* the device has this much memory */
	POOL_FACT_EMPTY_CACHE = 6, /* the program is about to call empty_cache() */
	/* Calls that make the facts above are recorded from here on, empty_cache() included. */
	POOL_FACT_WATCHED = 7,
};

/* Texts of settings start with this, so that an anonymized trace can keep them. */
#define POOL_SETTINGS_START "PYTORCH_ALLOC_CONF="

/* The same facts in a memory snapshot of ours, keys of its allocator_settings. */
#define TORCH_KEY_RELEASE     "torch_version"
#define TORCH_KEY_CHANGED     "settings_changed"
#define TORCH_KEY_SHARES      "memory_fractions"
#define TORCH_KEY_EMPTY_CACHE "empty_cache"

/* What a `host_process` record says. */
enum host_process_state {
	HOST_PROCESS_RUNS = 1,
	HOST_PROCESS_ENDED = 2, /* and had this much when it was last looked at */
};

#define POOL_STREAM_UNKNOWN  UINT64_MAX
#define POOL_PRIVATE_UNKNOWN UINT32_MAX

#define DEVICE_UNKNOWN UINT32_MAX
#define DEVICE_HOST    (UINT32_MAX - 1)
#define MODULE_UNKNOWN UINT32_MAX

/* A decoded context, as written by context_def. */
struct context {
	uint8_t pool;
	uint8_t kind;
	uint8_t page;
	uint8_t vendor;
	uint32_t device;
	uint32_t module;
	uint64_t flags;
};

#endif
