/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn.LSTM, nn.GRU and nn.RNN by cuDNN: what a network keeps for its backward pass, its weights, and its workspace.
 *
 * Of 2,000 networks on an H200 (cuDNN 9.19; one to four layers, both directions, dropout; float, half and bfloat16) what is kept and the weights
 * follow from the shape, to the byte. The workspace has a part for each layer and a rest that is not understood: the figures are a range from the
 * former to what 99 % had at most. Packed sequences, projections and double were not measured, so they fail by name.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3000
#define UNIT	      32u		  /* parts of what is kept are multiples of it */
#define KEPT_MORE     256u		  /* beside the parts */
#define PER_LAYER     (UINT64_C(8) << 20) /* of the workspace, for each direction */
#define REST	      (UINT64_C(1) << 20)
#define STATE_BYTES   24u /* of dropout, for each thread of the card */

enum mode { RELU, TANH, LSTM, GRU };
enum data_type { TYPE_FLOAT = 0, TYPE_HALF = 2, TYPE_BFLOAT16 = 9 };
enum layout { SEQUENCE_FIRST = 0, PACKED = 1 };

struct dropout {
	float rate;
};

struct network {
	int mode, type;
	unsigned int directions, gates;
	uint64_t layers, input, hidden;
	bool drops;
};

struct sequences {
	int layout;
	uint64_t steps, batch;
};

/* What cudnnGetRNNWeightParams() says of a matrix. */
struct tensor {
	bool known;
	int type, sizes[3];
};

SIM_API int cudnnCreateTensorDescriptor(void **out);
SIM_API int cudnnDestroyTensorDescriptor(void *it);
SIM_API int cudnnGetTensorNdDescriptor(const void *it, int wanted, int *out_type, int *out_count,
				       int *out_sizes, int *out_strides);
SIM_API int cudnnCreateDropoutDescriptor(void **out);
SIM_API int cudnnDestroyDropoutDescriptor(void *it);
SIM_API int cudnnDropoutGetStatesSize(void *handle, size_t *out);
SIM_API int cudnnSetDropoutDescriptor(void *it, void *handle, float rate, void *states,
				      size_t bytes, unsigned long long seed);
SIM_API int cudnnRestoreDropoutDescriptor(void *it, void *handle, float rate, void *states,
					  size_t bytes, unsigned long long seed);
SIM_API int cudnnCreateRNNDescriptor(void **out);
SIM_API int cudnnDestroyRNNDescriptor(void *it);
SIM_API int cudnnSetRNNDescriptor_v8(void *it, int algorithm, int mode, int bias, int direction,
				     int input_mode, int type, int precision, int math, int input,
				     int hidden, int projection, int layers, void *dropout,
				     unsigned int flags);
SIM_API int cudnnCreateRNNDataDescriptor(void **out);
SIM_API int cudnnDestroyRNNDataDescriptor(void *it);
SIM_API int cudnnSetRNNDataDescriptor(void *it, int type, int layout, int steps, int batch,
				      int width, const int *lengths, void *fill);
SIM_API int cudnnGetRNNWeightSpaceSize(void *handle, const void *it, size_t *out);
SIM_API int cudnnGetRNNWeightParams(void *handle, const void *it, int layer, size_t bytes,
				    const void *weights, int number, void *matrix,
				    void **out_matrix, void *bias, void **out_bias);
SIM_API int cudnnGetRNNTempSpaceSizes(void *handle, const void *it, int training, const void *data,
				      size_t *out_workspace, size_t *out_kept);

static int make(void **out, size_t bytes)
{
	*out = calloc(1, bytes);
	return *out == NULL ? NOT_SUPPORTED : SIM_OK;
}

static int refuse(const char *what)
{
	(void)sim_fail(what);
	return NOT_SUPPORTED;
}

static uint64_t rounded(uint64_t bytes)
{
	return (bytes + UNIT - 1) / UNIT * UNIT;
}

static uint64_t item_bytes(const struct network *network)
{
	return network->type == TYPE_FLOAT ? 4 : 2;
}

/* ---- descriptors of tensors: PyTorch asks only for those of weights ---- */

int cudnnCreateTensorDescriptor(void **out)
{
	return make(out, sizeof(struct tensor));
}

int cudnnDestroyTensorDescriptor(void *it)
{
	free(it);
	return SIM_OK;
}

int cudnnGetTensorNdDescriptor(const void *it, int wanted, int *out_type, int *out_count,
			       int *out_sizes, int *out_strides)
{
	const struct tensor *tensor = it;
	int i, stride = 1;

	if (!tensor->known || wanted < 3)
		return refuse("cudnnGetTensorNdDescriptor is not simulated");
	*out_type = tensor->type;
	*out_count = 3;
	for (i = 2; i >= 0; i--) {
		out_sizes[i] = tensor->sizes[i];
		out_strides[i] = stride;
		stride *= tensor->sizes[i];
	}
	return SIM_OK;
}

/* ---- dropout ---- */

int cudnnCreateDropoutDescriptor(void **out)
{
	return make(out, sizeof(struct dropout));
}

int cudnnDestroyDropoutDescriptor(void *it)
{
	free(it);
	return SIM_OK;
}

int cudnnDropoutGetStatesSize(void *handle, size_t *out)
{
	const struct sim_card *card = sim_card();

	(void)handle;
	*out = (size_t)card->sms * (size_t)card->sm_threads * STATE_BYTES;
	return SIM_OK;
}

int cudnnSetDropoutDescriptor(void *it, void *handle, float rate, void *states, size_t bytes,
			      unsigned long long seed)
{
	(void)handle, (void)states, (void)bytes, (void)seed;
	((struct dropout *)it)->rate = rate;
	return SIM_OK;
}

int cudnnRestoreDropoutDescriptor(void *it, void *handle, float rate, void *states, size_t bytes,
				  unsigned long long seed)
{
	return cudnnSetDropoutDescriptor(it, handle, rate, states, bytes, seed);
}

/* ---- networks ---- */

int cudnnCreateRNNDescriptor(void **out)
{
	return make(out, sizeof(struct network));
}

int cudnnDestroyRNNDescriptor(void *it)
{
	free(it);
	return SIM_OK;
}

int cudnnSetRNNDescriptor_v8(void *it, int algorithm, int mode, int bias, int direction,
			     int input_mode, int type, int precision, int math, int input,
			     int hidden, int projection, int layers, void *dropout,
			     unsigned int flags)
{
	static const unsigned int gates[] = {[RELU] = 1, [TANH] = 1, [LSTM] = 4, [GRU] = 3};
	struct network *network = it;

	(void)algorithm, (void)bias, (void)precision, (void)math, (void)flags;
	if (type != TYPE_FLOAT && type != TYPE_HALF && type != TYPE_BFLOAT16)
		return refuse("a recurrent network of double is not simulated");
	if (projection != hidden || input_mode != 0 || mode < RELU || mode > GRU)
		return refuse("a recurrent network with projections is not simulated");
	*network = (struct network){
		.mode = mode,
		.type = type,
		.directions = direction == 0 ? 1 : 2,
		.gates = gates[mode],
		.layers = (uint64_t)layers,
		.input = (uint64_t)input,
		.hidden = (uint64_t)hidden,
		.drops = dropout != NULL && ((const struct dropout *)dropout)->rate > 0,
	};
	return SIM_OK;
}

int cudnnCreateRNNDataDescriptor(void **out)
{
	return make(out, sizeof(struct sequences));
}

int cudnnDestroyRNNDataDescriptor(void *it)
{
	free(it);
	return SIM_OK;
}

int cudnnSetRNNDataDescriptor(void *it, int type, int layout, int steps, int batch, int width,
			      const int *lengths, void *fill)
{
	(void)type, (void)width, (void)lengths, (void)fill;
	*(struct sequences *)it = (struct sequences){layout, (uint64_t)steps, (uint64_t)batch};
	return SIM_OK;
}

/* ---- weights: of each layer and direction those of its input, of its state, and two biases ---- */

static uint64_t input_of(const struct network *network, uint64_t layer)
{
	return layer < network->directions ? network->input : network->hidden * network->directions;
}

/* Elements of one layer and direction. */
static uint64_t elements_of(const struct network *network, uint64_t layer)
{
	return network->gates * network->hidden * (input_of(network, layer) + network->hidden + 2);
}

/* Elements of all layers before this one. */
static uint64_t elements_before(const struct network *network, uint64_t layer)
{
	uint64_t count = 0, i;

	for (i = 0; i < layer; i++)
		count += elements_of(network, i);
	return count;
}

static uint64_t weight_bytes(const struct network *network)
{
	return elements_before(network, network->layers * network->directions) *
	       item_bytes(network);
}

int cudnnGetRNNWeightSpaceSize(void *handle, const void *it, size_t *out)
{
	(void)handle;
	*out = (size_t)weight_bytes(it);
	return SIM_OK;
}

int cudnnGetRNNWeightParams(void *handle, const void *it, int layer, size_t bytes,
			    const void *weights, int number, void *matrix, void **out_matrix,
			    void *bias, void **out_bias)
{
	const struct network *network = it;
	uint64_t hidden = network->hidden, input = input_of(network, (uint64_t)layer);
	unsigned int gates = network->gates, gate = (unsigned int)number % gates;
	bool of_state = (unsigned int)number >= gates;
	uint64_t start = elements_before(network, (uint64_t)layer), at;
	const char *base = weights;

	(void)handle, (void)bytes;
	if (matrix != NULL) {
		uint64_t width = of_state ? hidden : input;

		at = start + (of_state ? gates * hidden * input : 0) + gate * hidden * width;
		*(struct tensor *)matrix =
			(struct tensor){true, network->type, {1, (int)hidden, (int)width}};
		*out_matrix = (void *)(uintptr_t)(base + at * item_bytes(network));
	}
	if (bias != NULL) {
		at = start + gates * hidden * (input + hidden) + (unsigned int)number * hidden;
		*(struct tensor *)bias = (struct tensor){true, network->type, {1, (int)hidden, 1}};
		*out_bias = (void *)(uintptr_t)(base + at * item_bytes(network));
	}
	return SIM_OK;
}

/* ---- memory beside the tensors ---- */

/* What the forward pass keeps: gates and states of all layers, outputs between layers, and a bit for each element that may be dropped. */
static uint64_t kept_bytes(const struct network *network, const struct sequences *data)
{
	uint64_t count = data->steps * data->batch * network->hidden;
	uint64_t bytes = count * item_bytes(network);
	uint64_t all = network->layers * network->directions * bytes;
	uint64_t between = network->layers - 1, kept = KEPT_MORE;

	if (network->mode == LSTM)
		kept += rounded(4 * all) + rounded(all);
	else
		kept += rounded(network->mode == GRU ? 6 * all : all);
	kept += rounded(between * network->directions * bytes);
	if (network->drops)
		kept += between * network->directions *
			rounded((network->directions * count + 7) / 8);
	return kept;
}

static uint64_t workspace_bytes(const struct network *network, const struct sequences *data)
{
	uint64_t least = PER_LAYER * network->layers * network->directions;
	uint64_t elements = data->steps * data->batch *
			    (5 * network->input + 20 * network->directions * network->hidden);

	return sim_range(least,
			 least + elements * item_bytes(network) + weight_bytes(network) + REST);
}

int cudnnGetRNNTempSpaceSizes(void *handle, const void *it, int training, const void *data,
			      size_t *out_workspace, size_t *out_kept)
{
	const struct network *network = it;
	const struct sequences *sequences = data;

	(void)handle;
	if (sequences->layout == PACKED)
		return refuse("a recurrent network on packed sequences is not simulated");
	if (out_workspace != NULL)
		*out_workspace = (size_t)workspace_bytes(network, sequences);
	if (out_kept != NULL)
		*out_kept = training != 0 ? (size_t)kept_bytes(network, sequences) : 0;
	return SIM_OK;
}
