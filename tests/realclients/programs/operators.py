# SPDX-License-Identifier: Apache-2.0
"""Calls of PyTorch on the NPU against the same calls on the CPU, with their gradients where they have some. Prints how many were
compared, and a line for each that differs.
"""
import json
import warnings

import torch
import torch.nn.functional as F
import torch_npu  # pylint: disable=unused-import

warnings.filterwarnings("ignore")
torch.manual_seed(1)

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
COMPLEX = {torch.complex64: 1e-5, torch.complex128: 1e-12}


def difference(want, got):
    """Why two results are not the same, or None."""
    if isinstance(want, (tuple, list)):
        return next(filter(None, map(difference, want, got)), None)
    if not isinstance(want, torch.Tensor):
        return None if want == got else f"{want} and {got}"
    got = got.cpu()
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype} {tuple(want.shape)} and {got.dtype} {tuple(got.shape)}"
    tolerance = (TOLERANCE | COMPLEX | {torch.float64: 1e-12}).get(want.dtype, 0)
    if torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return f"{want.flatten()[:4].tolist()} and {got.flatten()[:4].tolist()}"


def leaf(value, device):
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().to(device).requires_grad_(value.requires_grad)


def gradients(result, arguments, seed):
    """Of the first result, with respect to all arguments that want one."""
    wanted = [value for value in arguments if isinstance(value, torch.Tensor) and value.requires_grad]
    out = result if isinstance(result, torch.Tensor) else result[0]
    return list(torch.autograd.grad(out, wanted, seed.to(out.device))) if wanted else []


def compare(function, *arguments):
    results = {device: (values := [leaf(value, device) for value in arguments], function(*values)) for device in ("cpu", "npu")}
    found = difference(results["cpu"][1], results["npu"][1])
    if found or not any(isinstance(value, torch.Tensor) and value.requires_grad for value in arguments):
        return found
    out = results["cpu"][1]
    seed = torch.randn_like(out if isinstance(out, torch.Tensor) else out[0])
    found = difference(*(gradients(result, values, seed) for values, result in results.values()))
    return f"gradient: {found}" if found else None


def check(name, function, *arguments):
    found = compare(function, *arguments)
    if found:
        print(json.dumps({"bad": name, "difference": found}), flush=True)
    check.count += 1


check.count = 0


def real(*shape, dtype=torch.float32, grad=False):
    return torch.randn(shape).to(dtype).requires_grad_(grad)


def whole(*shape, least=-9, most=9):
    return torch.randint(least, most, shape)


def elements(dtype):
    left, right, row = real(4, 5, dtype=dtype), real(4, 5, dtype=dtype), real(5, dtype=dtype)
    for name in "add sub mul div maximum minimum atan2 eq ne lt le gt ge".split():
        function = getattr(torch, name)
        check(f"{name} {dtype}", function, left, right)
        check(f"{name} of a row {dtype}", function, left, row)
        if name not in ("maximum", "minimum", "atan2"):
            check(f"{name} of a number {dtype}", function, left, 0.7)
    for name in "abs neg exp sin cos tanh sigmoid floor ceil round trunc sign reciprocal erf expm1 relu isfinite isnan".split():
        check(f"{name} {dtype}", getattr(torch, name), left)
    for name in "log sqrt rsqrt log1p".split():
        check(f"{name} {dtype}", getattr(torch, name), left.abs() + 0.1)
    for name in "gelu silu relu leaky_relu hardswish hardsigmoid mish logsigmoid softplus elu".split():
        check(f"F.{name} {dtype}", getattr(F, name), real(4, 5, dtype=dtype, grad=True))
    check(f"add alpha {dtype}", lambda x, y: torch.add(x, y, alpha=2.5), left, right)
    check(f"number minus {dtype}", lambda x: 3 - x, left)
    check(f"number divided {dtype}", lambda x: 3 / x, left)
    check(f"powers {dtype}", lambda x: (x.abs() ** 1.7, x ** 2, 2 ** x), left)
    check(f"where {dtype}", lambda x, y: torch.where(x > 0, x, y), left, right)
    check(f"masked_fill {dtype}", lambda x: x.masked_fill(x > 0, -1e4), left)
    check(f"clamp {dtype}", lambda x, y: (x.clamp(-0.5, 0.5), x.clamp_min(0.1), x.clamp(min=y)), left, right)
    check(f"lerp {dtype}", lambda x, y: torch.lerp(x, y, 0.3), left, right)
    check(f"addcmul {dtype}", lambda x, y: torch.addcmul(x, y, y, value=0.3), left, right)
    check(f"addcdiv {dtype}", lambda x, y: torch.addcdiv(x, x, y.abs() + 1, value=0.3), left, right)
    check(f"casts {dtype}", lambda x: (x.float(), x.half(), x.bfloat16(), (x * 3).int(), (x * 3).long(), x > 0), left)


def rows_and_sums(dtype):
    x = real(4, 5, dtype=dtype)
    for name in "sum mean prod amax amin std var norm".split():
        check(f"{name} {dtype}", lambda value, name=name: (getattr(value, name)(1), getattr(value, name)()), x)
    check(f"logsumexp {dtype}", lambda value: value.logsumexp(1), x)
    check(f"best {dtype}", lambda value: (*torch.max(value, 1), *torch.min(value, 0), value.argmax(1), value.argmin(0),
                                          value.argmax(), value.max(), value.min()), x)
    check(f"sorted {dtype}", lambda value: (*torch.sort(value, 1, descending=True), *torch.topk(value, 2, 1)), x)
    check(f"cumsum {dtype}", lambda value: value.cumsum(1), x)
    for dim in (-1, 1):
        check(f"softmax {dim} {dtype}", lambda value, dim=dim: value.softmax(dim), real(3, 4, 5, dtype=dtype, grad=True))
        check(f"log_softmax {dim} {dtype}", lambda value, dim=dim: value.log_softmax(dim), real(3, 4, 5, dtype=dtype, grad=True))
    check(f"layer_norm {dtype}", lambda value, weight, bias: F.layer_norm(value, (5,), weight, bias),
          real(3, 4, 5, dtype=dtype, grad=True), real(5, dtype=dtype, grad=True), real(5, dtype=dtype, grad=True))
    check(f"shapes {dtype}", lambda value: (value.t().contiguous(), value.flip(1), value.roll(2, 1), value.repeat(2, 3),
                                            F.pad(value, (1, 2, 0, 1), value=3.0), torch.cat([value, value], 1),
                                            torch.stack([value, value], 1), torch.tril(value), torch.triu(value, 1),
                                            [part.clone() for part in value.split([2, 3], 1)]), x)


def products(dtype):
    def grad(*shape):
        return real(*shape, dtype=dtype, grad=True)
    check(f"mm {dtype}", torch.mm, grad(3, 7), grad(7, 4))
    check(f"bmm {dtype}", torch.bmm, grad(2, 3, 7), grad(2, 7, 4))
    check(f"matmul {dtype}", torch.matmul, grad(2, 3, 5, 7), grad(7, 4))
    check(f"turned {dtype}", lambda x, y: x.t() @ y.t(), grad(7, 3), grad(4, 7))
    check(f"mv {dtype}", torch.mv, grad(3, 7), grad(7))
    check(f"dot {dtype}", torch.dot, grad(7), grad(7))
    check(f"addmm {dtype}", lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2), grad(4), grad(3, 7), grad(7, 4))
    check(f"linear {dtype}", F.linear, grad(2, 3, 7), grad(4, 7), grad(4))
    check(f"baddbmm {dtype}", torch.baddbmm, grad(2, 3, 4), grad(2, 3, 7), grad(2, 7, 4))


def integers():
    left, right = whole(4, 5), whole(4, 5, least=1)
    for name in "add sub mul maximum minimum eq ne lt le gt ge floor_divide remainder bitwise_and bitwise_or bitwise_xor".split():
        function = getattr(torch, name)
        check(f"{name} integers", function, left, right)
        check(f"{name} int32", function, left.int(), right.int())
        if name not in ("maximum", "minimum"):
            check(f"{name} integer and number", function, left, 3)
    check("quotients", lambda x, y: (torch.div(x, y), torch.div(x, y, rounding_mode="trunc")), left, right)
    check("sums", lambda x: (x.sum(), x.sum(0), (x > 0).sum(), (x > 0).any(), (x > -9).all(1)), left)
    check("large", lambda x: x * 1000003 + 7, torch.tensor([2 ** 60 // 1000003, -5]))
    check("signs", lambda x: (-x, x.abs(), ~x, x ** 3), left)
    check("logic", lambda x, y: torch.logical_and(x, y) | torch.logical_or(x, y) ^ torch.logical_not(x), left > 0, right > 4)
    check("mixed", lambda x, y: (x + y, (x > 0) * y), left, real(4, 5))
    check("bytes", lambda x: x + 1, torch.arange(10, dtype=torch.uint8))
    check("equal", torch.equal, left, left)


def places():
    index = torch.tensor([0, 3, -1])
    check("embedding", F.embedding, whole(3, 4, least=0, most=7), real(7, 5, grad=True))
    check("embedding with padding", lambda x, weight: F.embedding(x, weight, padding_idx=2), whole(3, 4, least=0, most=7),
          real(7, 5, grad=True))
    check("index", lambda x, k: x[k], real(5, 4, grad=True), index)
    check("two indices", lambda x, k, l: x[k, l], real(5, 4, grad=True), index, torch.tensor([1, 1, 2]))
    check("index behind", lambda x, k: x[:, k], real(5, 4, 3), torch.tensor([[0, 3], [1, 1]]))
    check("indices apart", lambda x, k: x[k, :, k], real(5, 4, 5), torch.tensor([0, 3]))
    check("mask", lambda x: (x[x > 0], torch.nonzero(x > 0), torch.masked_select(x, x < 0)), real(5, 4))
    check("mask of rows", lambda x, mask: x[mask], real(5, 4), torch.tensor([True, False, True, False, True]))
    check("put", lambda x, k: x.index_put((k,), torch.tensor(1.5, device=x.device)), real(5, 4), index)
    check("add up", lambda x, k, v: x.index_put((k,), v, accumulate=True), real(5, 4), torch.tensor([0, 3, 0]), real(3, 4))
    check("gather", lambda x, k: x.gather(1, k), real(3, 5, grad=True), whole(3, 2, least=0, most=5))
    check("scatter", lambda x, k, v: (x.scatter(1, k, v), x.scatter(1, k, 2.0)), real(3, 5),
          torch.tensor([[0, 1], [2, 3], [4, 0]]), real(3, 2))
    check("scatter_add", lambda x, k, v: x.scatter_add(0, k, v), real(3, 5), whole(2, 5, least=0, most=3), real(2, 5))
    check("index_select", lambda x, k: x.index_select(1, k), real(3, 5, grad=True), torch.tensor([0, 4, 4]))
    check("index_add", lambda x, k, v: x.index_add(0, k, v, alpha=2), real(3, 5), torch.tensor([0, 2, 0]), real(3, 5))
    check("one_hot", lambda x: F.one_hot(x, 7), whole(3, 4, least=0, most=7))
    check("unique", torch.unique, whole(20))
    check("bincount", torch.bincount, whole(20, least=0, most=5))
    check("made", lambda x: (torch.arange(10, device=x.device), torch.arange(0, 1, 0.1, device=x.device),
                             torch.linspace(0, 1, 11, device=x.device), torch.eye(3, 4, device=x.device),
                             torch.full((3, 4), 2 ** 40 + 1, device=x.device), torch.zeros(3, device=x.device)), real(1))


def put(x, index, value):
    x = x.clone()
    x[index] = value
    return x


def empty_places():
    """An index without elements names nothing; a dimension without an index is another thing."""
    none = torch.empty(0, dtype=torch.long)
    for x in (real(3, 5), whole(3, 5), real(3, 5) > 0):
        check(f"put by an empty index {x.dtype}", put, x, none, 1)
        check(f"put by an empty list {x.dtype}", lambda x: put(x, [], 1), x)
        check(f"put by an empty index of columns {x.dtype}", lambda x, k: put(x, (slice(None), k), 1), x, none)
        check(f"put by two empty indices {x.dtype}", lambda x, k: put(x, (k, k), 1), x, none)
        check(f"put by an empty index in two dimensions {x.dtype}", put, x, none.reshape(0, 2), 1)
        check(f"put by columns {x.dtype}", lambda x, k: put(x, (slice(None), k), 1), x, torch.tensor([1, 3]))
        check(f"put by what is not 0 in nothing {x.dtype}", lambda x, m: put(x, m.nonzero().flatten(), 1), x, torch.zeros(3))
        check(f"index_put of an empty mask {x.dtype}", lambda x, m: x.index_put((m,), torch.ones((), dtype=x.dtype, device=x.device)), x,
              torch.zeros(3, 5, dtype=torch.bool))
        check(f"index_put adding, by an empty index {x.dtype}",
              lambda x, k: x.index_put((k,), torch.ones((), dtype=x.dtype, device=x.device), accumulate=x.dtype != torch.bool), x, none)
        check(f"take by an empty index {x.dtype}", lambda x, k: (x[k], x[:, k], x.index_select(1, k)), x, none)
    check("index_select of a number", lambda x, k: x.index_select(0, k), real(), torch.tensor([0]))
    check("index_add of a number", lambda x, k, v: x.index_add(0, k, v), real(), torch.tensor([0]), real())
    check("linspace of one", lambda x: (torch.linspace(-2, -3, 1, device=x.device), torch.linspace(0, 9, 4, device=x.device)), real(1))


def large_integers():
    """Integers that a double does not have."""
    x = torch.tensor([2 ** 60 + 1, 2 ** 60, -(2 ** 61) - 1, 3])
    for name in "max min sum prod amax amin".split():
        check(f"{name} of large integers", lambda x, name=name: getattr(torch, name)(x), x)
    check("cumsum of large integers", lambda x: (x.cumsum(0), x.cumprod(0)), x)
    check("scatter_add of large integers", lambda x, k: x.scatter_add(0, k, x), x, torch.tensor([1, 1, 0, 3]))


def complexes(dtype):
    def number(*shape, grad=False):
        return torch.randn(*shape, dtype=dtype).requires_grad_(grad)
    left, right = number(4, 5, grad=True), number(4, 5, grad=True)
    for name in "add sub mul div".split():
        check(f"{name} {dtype}", getattr(torch, name), left, right)
        check(f"{name} of a number {dtype}", lambda x, name=name: getattr(torch, name)(x, 2 - 3j), left)
        check(f"{name} of a real number {dtype}", lambda x, name=name: getattr(torch, name)(x, 1j), real(4, 5))
    for name in "abs neg reciprocal exp log sqrt rsqrt sin cos tanh sum mean prod".split():
        check(f"{name} {dtype}", getattr(torch, name), left)
    check(f"casts {dtype}", lambda x: (x.to(torch.complex64), x.to(torch.complex128), x.real, x.imag, x.to(torch.float32), x != 0), left)
    check(f"casts to {dtype}", lambda x, y: (x.to(dtype), y.to(dtype)), real(4, 5), whole(4, 5))
    check(f"pow {dtype}", lambda x: (x ** 2, x ** 0.5, x ** (1 + 1j)), left)
    check(f"equal {dtype}", lambda x, y: (x == y, x != y, x == x, torch.equal(x, x), torch.equal(x, y)), left.detach(), right.detach())
    check(f"made of parts {dtype}", lambda x, y: (torch.stack([x, y]), torch.cat([x, y], 1), x.flip(0), x.repeat(2, 1), x[[1, 0]], x.tril()), left,
          right)
    check(f"filled {dtype}", lambda x: (torch.full((3,), 1 - 2j, dtype=dtype, device=x.device), torch.zeros_like(x), torch.ones_like(x)),
          left.detach())
    check(f"where {dtype}", lambda c, x, y: torch.where(c, x, y), torch.rand(4, 5) > 0.5, left, right)
    check(f"cumsum {dtype}", lambda x: (x.cumsum(0), x.cumprod(1)), left)
    for name in "fft ifft fft2 ifftn".split():
        check(f"{name} {dtype}", lambda x, name=name: getattr(torch.fft, name)(x), left)
    check(f"rfft to {dtype}", torch.fft.rfft, real(4, 6, grad=True))
    check(f"irfft {dtype}", torch.fft.irfft, number(4, 5))
    check(f"complex {dtype}", lambda x, y: torch.view_as_complex(torch.stack([x, y], -1)), real(4, 5), real(4, 5))


def losses():
    classes = whole(6, least=0, most=5)
    for options in ({}, {"ignore_index": 2}, {"reduction": "none"}, {"reduction": "sum"}, {"label_smoothing": 0.1}):
        check(f"cross_entropy {options}", lambda x, y, options=options: F.cross_entropy(x, y, **options), real(6, 5, grad=True),
              classes)
    check("cross_entropy with weights", F.cross_entropy, real(6, 5, grad=True), classes, torch.rand(5))
    check("cross_entropy of images", F.cross_entropy, real(2, 5, 3, 4, grad=True), whole(2, 3, 4, least=0, most=5))
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss"):
        for reduction in ("mean", "sum", "none"):
            check(f"{name} {reduction}", lambda x, y, name=name, reduction=reduction: getattr(F, name)(x, y, reduction=reduction),
                  real(4, 5, grad=True), real(4, 5))
    check("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), real(4, 5, grad=True), torch.rand(4, 5))
    check("bce with logits", F.binary_cross_entropy_with_logits, real(4, 5, grad=True), torch.rand(4, 5))
    check("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), real(2, 8, grad=True),
          real(2, 8))


def images():
    def grad(*shape):
        return real(*shape, grad=True)
    for options in ({}, {"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2, "padding": 1}):
        groups = options.get("groups", 1)
        check(f"conv2d {options}", lambda x, w, b, options=options: F.conv2d(x, w, b, **options), grad(2, 4, 7, 8),
              grad(6, 4 // groups, 3, 3), grad(6))
    check("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), grad(2, 4, 9), grad(6, 4, 3), grad(6))
    check("conv3d", lambda x, w: F.conv3d(x, w, padding=1), grad(1, 2, 4, 4, 4), grad(3, 2, 3, 3, 3))
    check("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), grad(2, 4, 5, 5),
          grad(4, 6, 3, 3), grad(6))
    check("max_pool2d", lambda x: F.max_pool2d(x, 2), grad(2, 3, 8, 8))
    check("max_pool2d overlapping", lambda x: F.max_pool2d(x, 3, 2, 1), grad(2, 3, 9, 8))
    check("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), grad(2, 3, 9, 8))
    check("avg_pool2d without padding", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), grad(2, 3, 9, 8))
    for size in (1, (3, 2)):
        check(f"adaptive_avg_pool2d {size}", lambda x, size=size: F.adaptive_avg_pool2d(x, size), grad(2, 3, 8, 8))
    check("batch_norm", lambda x, w, b: F.batch_norm(x, torch.zeros(3, device=x.device), torch.ones(3, device=x.device), w, b,
                                                     training=True), grad(4, 3, 5, 5), grad(3), grad(3))
    check("batch_norm trained", lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), grad(4, 3, 5, 5), grad(3), grad(3), real(3),
          torch.rand(3) + 0.5)
    check("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), grad(4, 6, 5, 5), grad(6), grad(6))
    check("rms_norm", lambda x, w: F.rms_norm(x, (5,), w), grad(4, 5), grad(5))
    for causal in (False, True):
        check(f"attention causal={causal}", lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
              grad(2, 2, 4, 8), grad(2, 2, 4, 8), grad(2, 2, 4, 8))


def scales():
    """The scale of a GradScaler after a clean step, after the last of an interval, when it cannot grow, and after an overflow."""
    for scale, tracker, found in ((1024.0, 3, 0.0), (1024.0, 9, 0.0), (3e38, 9, 0.0), (1024.0, 7, 1.0)):
        check(f"update of {scale} after {tracker} steps, {found}", lambda s, t, f: (torch._amp_update_scale_(s, t, f, 2.0, 0.5, 10), t),
              torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32), torch.tensor([found]))


for kind in TOLERANCE:
    elements(kind)
    rows_and_sums(kind)
    products(kind)
integers()
places()
empty_places()
large_integers()
for kind in COMPLEX:
    complexes(kind)
losses()
images()
scales()
print(json.dumps({"checked": check.count}))
