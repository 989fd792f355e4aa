/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_pta [--threads=N] [--rounds=N] [--devices=N] [--domain=NAME] [--expandable] [--old-loader]: a caching allocator that
 * behaves and reports as torch_npu's. It takes segments from the driver, cuts blocks of at least 512 bytes from them, keeps
 * what is freed, and gives whole segments back in empty_cache().
 *
 * For each block it sets the heap to all it has reserved, then registers the block; for each free the same with an
 * unregistration by address (client_torch.h). --domain=msleaks is the name of early versions. --expandable puts segments into
 * one reserved address range, in memory created without an address; it ends with 77 where the driver cannot do that.
 * --old-loader finds the functions as before 2026: never in the process first.
 */
#include "client_torch.h"

#define BLOCK_MIN     512
#define SMALL_MAX     MIB /* larger requests come from segments of their own kind */
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define LARGE_MIN     (10 * MIB) /* from here on a request has a segment of its own size */
#define LARGE_ROUND   (2 * MIB)
#define RANGE_BYTES   ((uint64_t)64 << 30)
#define DEVICES_MAX   8

/* A piece of a segment, or of the expandable range. Neighbours by address are linked; the list of an expandable range is one. */
struct piece {
	uint64_t address;
	uint64_t size;
	uint64_t id;
	bool is_small;
	bool is_used;
	struct piece *before;
	struct piece *after;
	struct piece *next;	 /* in the list of all pieces of the device */
	struct segment *segment; /* of the first piece of one: what came from the driver */
};

/* One expandable range: pages [0, mapped) have memory, in parts of unit bytes. */
struct range {
	uint64_t address;
	uint64_t unit;
	uint64_t mapped;
	struct segment *parts;
	struct piece *last;
};

struct device {
	pthread_mutex_t lock;
	unsigned number;
	uint64_t reserved; /* taken from the driver */
	uint64_t used;	   /* in blocks handed out */
	struct piece *pieces;
	struct range ranges[2]; /* small and large */
};

static struct {
	drvError_t (*reserve)(void **, size_t, size_t, void *, uint64_t);
	drvError_t (*map)(void *, size_t, size_t, struct drv_mem_handle *, uint64_t);
	drvError_t (*unmap)(void *);
} vmm;

static struct device devices[DEVICES_MAX];
static unsigned devices_count;
static unsigned threads_count;
static unsigned rounds_count;
static bool is_expandable;

static void report_malloc(struct log *log, const struct device *device, const struct piece *piece)
{
	if (!torch.is_open)
		return;
	torch_set_heap(device->number, piece->address, device->reserved);
	torch_register(device->number, piece->address, piece->size);
	log_register(log, piece->id, "PTA", piece->address, piece->size, device->number,
		     device->used, device->reserved);
}

static void report_free(struct log *log, const struct device *device, const struct piece *piece)
{
	if (!torch.is_open)
		return;
	torch_set_heap(device->number, piece->address, device->reserved);
	torch_unregister(piece->address);
	log_unregister(log, piece->id, device->used, device->reserved);
}

static struct piece *piece_new(struct device *device, uint64_t address, uint64_t size,
			       bool is_small)
{
	struct piece *piece = calloc(1, sizeof(*piece));

	target_check(piece != NULL, "no memory");
	*piece = (struct piece){
		.address = address, .size = size, .is_small = is_small, .next = device->pieces};
	device->pieces = piece;
	return piece;
}

/* Takes a free piece out of all lists. */
static void piece_free(struct device *device, struct piece *piece)
{
	struct piece **link = &device->pieces;

	while (*link != piece)
		link = &(*link)->next;
	*link = piece->next;
	if (piece->before != NULL)
		piece->before->after = piece->after;
	if (piece->after != NULL)
		piece->after->before = piece->before;
	for (unsigned i = 0; i < 2; i++) {
		if (device->ranges[i].last == piece)
			device->ranges[i].last = piece->before;
	}
	free(piece);
}

/* Makes one piece of a free one and the free one after it. */
static struct piece *merge(struct device *device, struct piece *left, struct piece *right)
{
	left->size += right->size;
	piece_free(device, right);
	return left;
}

/* The smallest free piece that will do. */
static struct piece *find_cached(const struct device *device, uint64_t size, bool is_small)
{
	struct piece *best = NULL;

	for (struct piece *piece = device->pieces; piece != NULL; piece = piece->next) {
		if (!piece->is_used && piece->is_small == is_small && piece->size >= size &&
		    (best == NULL || piece->size < best->size ||
		     (piece->size == best->size && piece->address < best->address)))
			best = piece;
	}
	return best;
}

static struct piece *add_segment(struct log *log, struct device *device, uint64_t size,
				 bool is_small)
{
	struct segment *segment = malloc(sizeof(*segment));
	uint64_t bytes = is_small	    ? SMALL_SEGMENT
			 : size < LARGE_MIN ? LARGE_SEGMENT
					    : (size + LARGE_ROUND - 1) & ~(LARGE_ROUND - 1);
	struct piece *piece;

	target_check(segment != NULL, "no memory");
	*segment = segment_alloc(log, bytes, device->number);
	device->reserved += bytes;
	piece = piece_new(device, segment->address, bytes, is_small);
	piece->segment = segment;
	return piece;
}

/* Maps so much at the end of the range that its last piece, if free, or a new one holds `size`. */
static struct piece *grow_range(struct log *log, struct device *device, uint64_t size,
				bool is_small)
{
	struct range *range = &device->ranges[is_small ? 0 : 1];
	struct piece *piece;
	void *address = NULL;

	if (range->address == 0) {
		target_check(vmm.reserve(&address, RANGE_BYTES, 0, NULL, 1) == 0, "reserve failed");
		range->address = (uint64_t)(uintptr_t)address;
		range->unit = is_small ? SMALL_SEGMENT : LARGE_SEGMENT;
		range->parts = calloc(RANGE_BYTES / range->unit, sizeof(*range->parts));
		target_check(range->parts != NULL, "no memory");
	}
	piece = range->last;
	if (piece == NULL || piece->is_used) {
		piece = piece_new(device, range->address + range->mapped, 0, is_small);
		piece->before = range->last;
		if (range->last != NULL)
			range->last->after = piece;
		range->last = piece;
	}
	while (piece->size < size) {
		struct segment *part = &range->parts[range->mapped / range->unit];

		*part = segment_create(log, range->unit, device->number);
		target_check(vmm.map((void *)(uintptr_t)(range->address + range->mapped),
				     range->unit, 0,
				     (struct drv_mem_handle *)(uintptr_t)part->address, 0) == 0,
			     "map failed");
		range->mapped += range->unit;
		piece->size += range->unit;
		device->reserved += range->unit;
	}
	return piece;
}

/* Cuts off what is more than worth keeping together. */
static void split(struct device *device, struct piece *piece, uint64_t size)
{
	uint64_t rest = piece->size - size;
	struct piece *after;

	if (rest < BLOCK_MIN || (!piece->is_small && !is_expandable && rest <= SMALL_MAX))
		return;
	after = piece_new(device, piece->address + size, rest, piece->is_small);
	after->before = piece;
	after->after = piece->after;
	if (piece->after != NULL)
		piece->after->before = after;
	piece->after = after;
	piece->size = size;
	for (unsigned i = 0; i < 2; i++) {
		if (device->ranges[i].last == piece)
			device->ranges[i].last = after;
	}
}

static struct piece *allocate(struct log *log, struct device *device, uint64_t request)
{
	uint64_t size = request < BLOCK_MIN
				? BLOCK_MIN
				: (request + BLOCK_MIN - 1) & ~(uint64_t)(BLOCK_MIN - 1);
	bool is_small = size <= SMALL_MAX;
	struct piece *piece;

	pthread_mutex_lock(&device->lock);
	piece = find_cached(device, size, is_small);
	if (piece == NULL)
		piece = is_expandable ? grow_range(log, device, size, is_small)
				      : add_segment(log, device, size, is_small);
	split(device, piece, size);
	piece->is_used = true;
	piece->id = log->next_id++;
	device->used += piece->size;
	report_malloc(log, device, piece);
	pthread_mutex_unlock(&device->lock);
	return piece;
}

static void give_back(struct log *log, struct device *device, struct piece *piece)
{
	pthread_mutex_lock(&device->lock);
	device->used -= piece->size;
	report_free(log, device, piece);
	piece->is_used = false;
	if (piece->after != NULL && !piece->after->is_used)
		piece = merge(device, piece, piece->after);
	if (piece->before != NULL && !piece->before->is_used)
		piece = merge(device, piece->before, piece);
	pthread_mutex_unlock(&device->lock);
}

/* Unmaps the parts at the end of the range that no block reaches into. */
static void shrink_range(struct log *log, struct device *device, struct range *range)
{
	struct piece *piece = range->last;

	while (piece != NULL && !piece->is_used && piece->size >= range->unit) {
		struct segment *part = &range->parts[range->mapped / range->unit - 1];

		range->mapped -= range->unit;
		piece->size -= range->unit;
		device->reserved -= range->unit;
		target_check(vmm.unmap((void *)(uintptr_t)(range->address + range->mapped)) == 0,
			     "unmap failed");
		segment_free(log, part);
	}
	if (piece != NULL && piece->size == 0)
		piece_free(device, piece);
}

/* The driver gets back what no block is in. Nobody is told. */
static void empty_cache(struct log *log, struct device *device)
{
	struct piece *next;

	pthread_mutex_lock(&device->lock);
	for (struct piece *piece = device->pieces; piece != NULL; piece = next) {
		next = piece->next;
		if (piece->segment != NULL && !piece->is_used && piece->after == NULL) {
			segment_free(log, piece->segment);
			device->reserved -= piece->size;
			free(piece->segment);
			piece_free(device, piece);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		shrink_range(log, device, &device->ranges[i]);
	pthread_mutex_unlock(&device->lock);
}

#define LIVE_MAX 24

struct worker {
	pthread_t thread;
	unsigned number;
	struct piece *live[LIVE_MAX];
	struct device *places[LIVE_MAX];
};

/* Mostly small blocks, some of a few MiB, rarely more than a segment. */
static uint64_t random_size(uint64_t *seed)
{
	switch (target_random(seed) % 16) {
	case 0:
		return LARGE_MIN + target_random(seed) % (24 * MIB);
	case 1:
	case 2:
	case 3:
		return SMALL_MAX + target_random(seed) % (8 * MIB);
	default:
		return 1 + target_random(seed) % SMALL_MAX;
	}
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	uint64_t seed = 88172645463325252ull + worker->number;
	struct log *log = log_new();

	for (unsigned round = 0; round < rounds_count; round++) {
		unsigned slot = (unsigned)(target_random(&seed) % LIVE_MAX);

		if (worker->live[slot] != NULL) {
			give_back(log, worker->places[slot], worker->live[slot]);
			worker->live[slot] = NULL;
		} else {
			worker->places[slot] = &devices[target_random(&seed) % devices_count];
			worker->live[slot] =
				allocate(log, worker->places[slot], random_size(&seed));
		}
		if (round % 64 == 63)
			empty_cache(log, &devices[target_random(&seed) % devices_count]);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker *workers;
	struct log *log;

	threads_count = option_number(argc, argv, "--threads", 1);
	rounds_count = option_number(argc, argv, "--rounds", 500);
	devices_count = option_number(argc, argv, "--devices", 1);
	is_expandable = option_set(argc, argv, "--expandable");
	target_check(devices_count >= 1 && devices_count <= DEVICES_MAX, "--devices is 1 to 8");
	if (is_expandable) {
		*(void **)&vmm.reserve = dlsym(RTLD_DEFAULT, "halMemAddressReserve");
		*(void **)&vmm.map = dlsym(RTLD_DEFAULT, "halMemMap");
		*(void **)&vmm.unmap = dlsym(RTLD_DEFAULT, "halMemUnmap");
		if (!vmm.reserve || !vmm.map || !vmm.unmap)
			return 77;
	}
	torch_open(option_word(argc, argv, "--domain", "ptaCaching"),
		   option_set(argc, argv, "--old-loader"));
	for (unsigned i = 0; i < devices_count; i++) {
		devices[i].number = i;
		pthread_mutex_init(&devices[i].lock, NULL);
	}
	log = log_new();
	workers = calloc(threads_count, sizeof(*workers));
	target_check(workers != NULL, "no memory");
	for (unsigned i = 0; i < threads_count; i++) {
		workers[i].number = i;
		target_check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0,
			     "pthread_create failed");
	}
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(workers[i].thread, NULL);
	/* Another thread frees what is left, but for every fourth block. */
	for (unsigned i = 0; i < threads_count; i++) {
		for (unsigned slot = 0; slot < LIVE_MAX; slot++) {
			if (workers[i].live[slot] != NULL && slot % 4 != 0)
				give_back(log, workers[i].places[slot], workers[i].live[slot]);
		}
	}
	log_write("pta", torch.is_open);
	return 0;
}
