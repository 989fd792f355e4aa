# SPDX-License-Identifier: Apache-2.0
"""Things that are sensitive to who else listens to operators; prints a line for each, which must be the same with and without
the tool. {"made": n}: frames that torch.compile compiled, which a listener can bring down to none."""
import sys
import threading
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

warnings.simplefilter("ignore")


def case(function):
    try:
        print(function.__name__, function())
    except Exception as error:
        print(function.__name__, "raised", type(error).__name__, str(error)[:200])


@case
def compiled_with_all_of_it_in_one_graph():
    nodes = []

    def backend(graph, _inputs):
        nodes.append(len(graph.graph.nodes))
        return graph.forward

    x = torch.ones(4, requires_grad=True)
    torch.compile(lambda x: (x.sin() + 1).relu().sum(), backend=backend, fullgraph=True)(x).backward()
    return nodes, x.grad.tolist()


@case
def compiled_through_autograd():
    x = torch.ones(4, requires_grad=True)
    torch.compile(lambda x: (x.sin() + 1).relu().sum(), backend="aot_eager", fullgraph=True)(x).backward()
    return x.grad.tolist()


@case
def compiled_in_pieces():
    from torch._dynamo.testing import CompileCounter
    counter = CompileCounter()

    def pieces(x):
        y = x.cos()
        torch._dynamo.graph_break()
        return y.sin() * 2

    function = torch.compile(pieces, backend=counter)
    function(torch.ones(3))
    function(torch.ones(3))
    return counter.frame_count, counter.op_count


@case
def traced_by_jit():
    return torch.jit.trace(lambda x: x * 2 + 1, torch.ones(2))(torch.ones(2)).tolist()


@case
def traced_by_fx():
    from torch.fx.experimental.proxy_tensor import make_fx
    return [len(make_fx(lambda x: x.sin() + 1, tracing_mode=mode)(torch.ones(2)).graph.nodes) for mode in ("real", "symbolic")]


@case
def exported():
    class Module(torch.nn.Module):
        def forward(self, x):
            return x.relu() + 1

    return len(torch.export.export(Module(), (torch.ones(2),)).graph.nodes)


@case
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return type(torch.empty(3) + 1).__name__


@case
def functions_of_functions():
    return (torch.func.grad(lambda x: (x ** 2).sum())(torch.ones(3)).tolist(),
            torch.vmap(lambda x: x * 2)(torch.ones(2, 2)).tolist())


@case
def operators_that_take_functions():
    from torch.nn.attention.flex_attention import flex_attention
    query = torch.ones(1, 1, 4, 8)
    return flex_attention(query, query, query).sum().item()


@case
def tensors_without_strides():
    sparse = torch.eye(3).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])
    return ((sparse @ torch.ones(3, 1)).sum().item(), (sparse + sparse).coalesce().values().tolist(),
            (torch.eye(3).to_sparse_csr() @ torch.ones(3, 1)).sum().item(), (nested * 2).to_padded_tensor(0).sum().item(),
            (torch.empty(3, device="meta") + 1).device)


@case
def a_class_with_operators_of_its_own():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            self = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            self.inner = inner
            return self

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return Wrapper(func(*[arg.inner if isinstance(arg, Wrapper) else arg for arg in args], **(kwargs or {})))

    return (Wrapper(torch.ones(3)) * 2).inner.tolist()


@case
def another_listener():
    class Listener(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Listener.seen += 1
            return func(*args, **(kwargs or {}))

    with Listener():
        torch.ones(2) + 1
    return Listener.seen


@case
def recomputed():
    from torch.utils.checkpoint import checkpoint
    x = torch.ones(3, requires_grad=True)
    for reentrant in (False, True):
        checkpoint(lambda t: t.sin().exp(), x, use_reentrant=reentrant).sum().backward()
    return x.grad.tolist()


@case
def hooks_on_saved_tensors():
    x, unpacked = torch.ones(3, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (unpacked.append(1), t)[1]):
        y = x.exp()
    y.sum().backward()
    return len(unpacked)


@case
def a_saved_tensor_that_was_changed():
    y = torch.ones(3, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


@case
def an_operator_that_fails():
    return torch.ones(2) @ torch.ones(3)


@case
def a_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append((torch.ones(5) * 3).sum().item()))
    thread.start()
    thread.join()
    return results


@case
def processes_of_a_loader():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    return sum(batch[0].sum().item() for batch in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1))


@case
def sums_of_gradients():
    weight = torch.ones(3, requires_grad=True)
    for _ in range(3):
        (weight * 2).sum().backward()
    return weight.grad.tolist()


sys.exit(3)
