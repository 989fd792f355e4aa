# SPDX-License-Identifier: Apache-2.0
"""Whether the values of a variable are made from its old values, by the text of the program's own files.

`history = torch.cat([history, new])` collects; `for x, y in loader: x = x.to(device)` replaces. Each assignment is an edge from what it
reads to what it writes. A local has a node for each assignment and, at each loop, one for what the previous pass left, so that it is
made from its old value if a node of it can be reached from itself. Globals that functions assign, attributes (one of a name, whatever
object has it), what nested functions read and results of functions have one node each. Where the text does not decide it, the answer
is that the old value is used.

Files are read once until forget(), and only if all of the program's own have at most _BYTES; nothing of the program is called."""
import ast
import os

from ._filled import _files, is_own

_BYTES = 384 << 10
_FILLS = {"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "put", "put_nowait"}
_RESIZES = {"resize_", "set_"}
_NAMED = {"register_buffer", "register_parameter"}  # methods whose first argument is the name of an attribute
_CALLED = ("forward", "__call__")
_ANY = ".*"  # an attribute whose name the text does not have
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINES = (*_FUNCTIONS, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_known: dict = {}


def forget():
    """Gives back what was read."""
    _known.clear()


def _parameters(function):
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one is not None]


def _parts(tree):
    """All parts of a statement or function in the order of a text, without the functions and classes that it defines."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, _DEFINES):
            yield child
            yield from _parts(child)


def _bound(tree):
    return {part.id for part in _parts(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


class _Scope:
    """A module, function or class, the names that it binds, and while it is walked the latest node of each."""

    def __init__(self, path, tree, parent):
        self.path, self.tree, self.parent = path, tree, parent
        self.is_class = isinstance(tree, ast.ClassDef)
        self.names = _bound(tree) | {child.name for part in (tree, *_parts(tree)) for child in ast.iter_child_nodes(part) if isinstance(child, _DEFINES)}
        if isinstance(tree, _FUNCTIONS):
            self.names.update(_parameters(tree))
        parts = list(_parts(tree))
        self.globals = {name for part in parts if isinstance(part, ast.Global) for name in part.names}
        self.outer = {name for part in parts if isinstance(part, ast.Nonlocal) for name in part.names}
        self.modules = {(name.asname or name.name).partition(".")[0] for part in parts if isinstance(part, (ast.Import, ast.ImportFrom)) for name in part.names}
        self.latest = {}

    def owner(self, name):
        """The scope that a name belongs to."""
        scope = self
        while scope.parent is not None:
            if name in scope.globals:
                while scope.parent is not None:
                    scope = scope.parent
            elif name in scope.names and name not in scope.outer and (scope is self or not scope.is_class):
                return scope
            else:
                scope = scope.parent
        return scope

    def whole(self, name):
        """The node that stands for all values of a name."""
        owner = self.owner(name)
        return f".{name}" if owner.is_class else (owner.path, owner.tree.lineno if owner.parent is not None else 0, name)

    def is_import(self, name):
        scope = self
        while scope is not None:
            if name in scope.modules:
                return True
            scope = scope.parent
        return False


class _Flows:
    """What is made from what, of all files."""

    def __init__(self, files):
        self.edges = {}  # node -> [(nodes that the value reads, "file.py:12")]
        self.same = {}  # node -> nodes whose value it may be, as it is or as a part, a view or a copy
        self.values = {}  # node of a name -> the nodes of its single values
        self.joins = set()  # nodes where ways meet, which are no value by themselves
        self.filled = set()  # nodes of names whose items change
        self.functions = {}  # name -> [(scope, class around it or None)]
        self.scopes = {}  # (path, first line, name) of a function or class -> scope
        self.shared = set()  # nodes of names that functions around or in others assign
        self.attributes = {part.attr for _path, tree in files for part in ast.walk(tree) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)}
        self.modules = [_Scope(path, tree, None) for path, tree in files]
        for module in self.modules:
            self._define(module, module.tree)
        for scope in self.scopes.values():
            self.shared.update(scope.whole(name) for name in scope.globals | scope.outer)
        for scope in (*self.modules, *self.scopes.values()):
            for name in _parameters(scope.tree) if isinstance(scope.tree, _FUNCTIONS) else ():
                scope.latest[name] = self._given(scope, name)
                self._edge(scope.whole(name), {scope.latest[name]}, "", {scope.latest[name]})
            self._walk(scope, scope.tree.body)
        self.circles = self._find_circles()  # node -> number of the circle that it is in

    def _define(self, scope, tree):
        for child in ast.iter_child_nodes(tree):
            if not isinstance(child, _DEFINES):
                self._define(scope, child)
                continue
            inner = _Scope(scope.path, child, scope)
            self.scopes[scope.path, min((one.lineno for one in child.decorator_list), default=child.lineno), child.name] = inner
            if not inner.is_class:
                around = scope.tree if scope.is_class else None
                name = around.name if around is not None and child.name == "__init__" else child.name
                self.functions.setdefault(name, []).append((inner, around))
            self._define(inner, child)

    # ---- statements ----

    def _walk(self, scope, statements):
        for one in statements:
            if isinstance(one, _DEFINES):
                continue
            if isinstance(one, _LOOPS):
                self._loop(scope, one)
            elif isinstance(one, (ast.If, ast.Try)):
                self._branches(scope, one)
            elif isinstance(one, (ast.With, ast.AsyncWith)):
                for item in one.items:
                    self._take(scope, item)
                self._walk(scope, one.body)
            elif hasattr(ast, "Match") and isinstance(one, ast.Match):
                self._any_order(scope, one)
            else:
                self._take(scope, one)

    def _line(self, scope, part):
        return f"{os.path.basename(scope.path)}:{part.lineno}"

    def _join(self, scope, name, ways, line):
        node = self._value(scope, name)
        self.joins.add(node)
        for way in ways:
            self._edge(node, {way}, line, {way})
        scope.latest[name] = node
        return node

    def _loop(self, scope, loop):
        line = self._line(scope, loop)
        if not isinstance(loop, ast.While):
            self._take(scope, loop.iter)
        names = sorted(name for name in _bound(loop) if scope.owner(name) is scope)
        left = {name: self._join(scope, name, [self._node(scope, name)], line) for name in names}
        if isinstance(loop, ast.While):
            self._take(scope, loop.test)
        else:
            self._assign(scope, loop.target, loop.iter, line)
        self._walk(scope, loop.body)
        for name in names:
            self._edge(left[name], {self._node(scope, name)}, line, {self._node(scope, name)})
            scope.latest[name] = left[name]
        self._walk(scope, loop.orelse)

    def _branches(self, scope, statement):
        if isinstance(statement, ast.If):
            self._take(scope, statement.test)
            bodies = [statement.body, statement.orelse]
        else:
            self._walk(scope, statement.body)
            bodies = [statement.orelse, *(handler.body for handler in statement.handlers)]
        before, ways = dict(scope.latest), []
        for body in bodies:
            scope.latest = dict(before)
            self._walk(scope, body)
            ways.append(scope.latest)
        scope.latest = dict(before)
        for name in sorted(set().union(*ways)):
            found = {way[name] for way in ways if name in way}
            if found != {before.get(name)}:
                self._join(scope, name, found | ({before[name]} if name in before else set()), self._line(scope, statement))
        self._walk(scope, getattr(statement, "finalbody", ()))

    def _any_order(self, scope, statement):
        for name in sorted(_bound(statement)):
            self.shared.add(scope.whole(name))
        self._take(scope, statement)

    def _take(self, scope, statement):
        """An expression, or a statement that has no others: its calls, then its assignments."""
        parts = [statement, *_parts(statement)]
        for part in parts:
            if isinstance(part, ast.Call):
                self._call(scope, part)
            elif isinstance(part, ast.comprehension):
                self._assign(scope, part.target, part.iter, self._line(scope, part.iter))
        for part in parts:
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    self._assign(scope, target, part.value, self._line(scope, part))
            elif isinstance(part, (ast.AnnAssign, ast.NamedExpr)) and part.value is not None:
                self._assign(scope, part.target, part.value, self._line(scope, part))
            elif isinstance(part, ast.AugAssign):
                self._bind(scope, part.target, self._reads(scope, part.value) | self._reads(scope, part.target), self._line(scope, part))
            elif isinstance(part, ast.withitem) and part.optional_vars is not None:
                self._assign(scope, part.optional_vars, part.context_expr, self._line(scope, part.context_expr))
            elif isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom)) and part.value is not None and isinstance(scope.tree, _FUNCTIONS):
                self._edge(("result", scope.tree.name), self._reads(scope, part.value), self._line(scope, part), self._same(scope, part.value))

    # ---- assignments ----

    def _edge(self, node, reads, line, same=()):
        self.edges.setdefault(node, []).append((frozenset(reads), line))
        self.same.setdefault(node, set()).update(same)

    def _value(self, scope, name):
        """A node for a new value of a name."""
        whole = scope.whole(name)
        if isinstance(whole, str) or whole in self.shared or scope.owner(name) is not scope:
            return whole
        values = self.values.setdefault(whole, [])
        values.append((*whole, len(values)))
        self._edge(whole, {values[-1]}, "", {values[-1]})
        return values[-1]

    def _given(self, scope, name):
        """The node of what callers give a function as a parameter."""
        whole = scope.whole(name)
        return whole if whole in self.shared else (*whole, "given")

    def _node(self, scope, name):
        whole = scope.whole(name)
        return whole if whole in self.shared or scope.owner(name) is not scope else scope.latest.get(name, (*whole, "unbound"))

    def _assign(self, scope, target, value, line):
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)) and len(target.elts) == len(value.elts):
            values = [(self._reads(scope, given), self._same(scope, given)) for given in value.elts]
            for one, (reads, same) in zip(target.elts, values):
                self._bind(scope, one, reads, line, same)
        else:
            self._bind(scope, target, self._reads(scope, value), line, self._same(scope, value))

    def _bind(self, scope, target, reads, line, same=()):
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._bind(scope, one, reads, line, same)
        elif isinstance(target, ast.Starred):
            self._bind(scope, target.value, reads, line, same)
        elif isinstance(target, ast.Name):
            node = self._value(scope, target.id)
            self._edge(node, reads, line, same)
            scope.latest[target.id] = node
        elif isinstance(target, ast.Attribute):
            self._edge(f".{target.attr}", reads, line, same)
            if target.attr == "data":
                self._fill(scope, target.value, reads, line)
        elif isinstance(target, ast.Subscript):
            self._fill(scope, target.value, reads, line)

    def _fill(self, scope, value, reads, line):
        """The variable that an expression is, or is a part of, has `reads` in it from here on, and what it had before."""
        while isinstance(value, (ast.Subscript, ast.Call)):
            value = value.func if isinstance(value, ast.Call) else value.value
        if isinstance(value, ast.Name):
            self.filled.add(scope.whole(value.id))
            self._edge(self._node(scope, value.id), reads, line)
        elif isinstance(value, ast.Attribute):
            self.filled.add(f".{value.attr}")
            self._edge(f".{value.attr}", reads, line)

    # ---- calls ----

    def _call(self, scope, call):
        line, function = self._line(scope, call), call.func
        values = [*call.args, *(word.value for word in call.keywords)]
        name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if isinstance(function, ast.Attribute) and name in _FILLS | _RESIZES:
            reads = set().union(*(self._reads(scope, one) for one in values), self._reads(scope, function.value) if name in _RESIZES else ())
            self._fill(scope, function.value, reads, line)
        elif isinstance(function, ast.Attribute) and name in _NAMED and first is not None and len(values) > 1:
            self._edge(f".{first}", self._reads(scope, values[1]), line)
        elif name == "setattr" and len(values) == 3:
            constant = values[1].value if isinstance(values[1], ast.Constant) else "*"
            self._edge(f".{constant}", self._reads(scope, values[2]), line)
        for inner, around in self._meant(scope, function):
            given = _parameters(inner.tree)[1 if around is not None else 0:]
            for at, one in enumerate(call.args):
                for parameter in given if isinstance(one, ast.Starred) or at >= len(given) else [given[at]]:
                    self._edge(self._given(inner, parameter), self._reads(scope, one), line, self._same(scope, one))
            for word in call.keywords:
                for parameter in [word.arg] if word.arg in given else given:
                    self._edge(self._given(inner, parameter), self._reads(scope, word.value), line, self._same(scope, word.value))

    def _meant(self, scope, function):
        """The functions of the program that a call may run. A variable that is called may have a forward() or __call__() of a class around none of this."""
        name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        if name in self.functions:
            return self.functions[name]
        if isinstance(function, ast.Name) and (name not in scope.owner(name).names or scope.is_import(name)):
            return []
        if isinstance(function, ast.Attribute) and name not in self.attributes:
            return []
        around = scope
        while around is not None and not around.is_class:
            around = around.parent
        return [one for called in _CALLED for one in self.functions.get(called, ()) if around is None or one[1] is not around.tree]

    def _reads(self, scope, value):
        """The nodes that an expression reads."""
        reads = set()
        for part in (value, *_parts(value)):
            if isinstance(part, ast.Name):
                reads.add(self._node(scope, part.id))
                if part.id in self.functions:
                    reads.add(("result", part.id))
            elif isinstance(part, ast.Attribute):
                reads.add(f".{part.attr}")
            elif isinstance(part, ast.Call):
                reads.update(("result", inner.tree.name) for inner, _around in self._meant(scope, part.func))
                if isinstance(part.func, ast.Name) and part.func.id == "getattr" and len(part.args) > 1:
                    reads.add(f".{part.args[1].value}" if isinstance(part.args[1], ast.Constant) else _ANY)
        return reads

    def _same(self, scope, value):
        """The nodes whose value an expression may be: of a method that is not of the program those of its object, of a function those of
        what it is given, as next(), zip() and enumerate() hand on."""
        same, todo = set(), [value]
        while todo:
            part = todo.pop()
            if isinstance(part, ast.Name):
                same.add(self._node(scope, part.id))
            elif isinstance(part, ast.Attribute):
                same.add(f".{part.attr}")
            elif isinstance(part, ast.Call):
                meant = self._meant(scope, part.func)
                same.update(("result", inner.tree.name) for inner, _around in meant)
                todo += [] if meant else [part.func.value] if isinstance(part.func, ast.Attribute) else part.args
            elif isinstance(part, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
                todo.append(part.value)
            elif isinstance(part, (ast.IfExp, ast.BoolOp, ast.Tuple, ast.List)):
                todo += ast.iter_child_nodes(part)
        return same

    # ---- answers ----

    def _find_circles(self):
        """Gives all nodes that can be reached from each other one number (Tarjan's algorithm, without recursion)."""
        circles, order, lowest, open_nodes = {}, {}, {}, []
        for start in list(self.edges):
            todo = [(start, None)]
            while todo:
                node, below = todo.pop()
                if below is None:
                    if node in order:
                        continue
                    order[node] = lowest[node] = len(order)
                    open_nodes.append(node)
                    below = iter({one for reads, _line in self.edges.get(node, ()) for one in reads})
                for one in below:
                    if one not in order:
                        todo += [(node, below), (one, None)]
                        break
                    if one not in circles:
                        lowest[node] = min(lowest[node], lowest[one])
                else:
                    if lowest[node] == order[node]:
                        while node not in circles:
                            circles[open_nodes.pop()] = order[node]
                    elif todo:
                        above = todo[-1][0]
                        lowest[above] = min(lowest[above], lowest[node])
        return circles

    def grown(self, whole):
        """The lines that make a variable from its old value."""
        return set().union(*(self._grown(node) for node in (whole, *self.values.get(whole, ()))))

    def _grown(self, node):
        if node in self.joins and node not in self.shared and not isinstance(node, str):
            return set()
        return {line for reads, line in self.edges.get(node, ()) if any(self.circles[one] == self.circles[node] for one in reads)}

    def is_renewed(self, whole, is_container):
        if whole not in self.edges or is_container and whole in self.filled or isinstance(whole, str) and self.grown(_ANY):
            return False
        seen, todo = set(), [whole]
        while todo:
            node = todo.pop()
            if node not in seen:
                if self._grown(node):
                    return False
                seen.add(node)
                todo += self.same.get(node, ())
        return True

    def find(self, variable):
        """The node of a variable, None: it is not known."""
        where, name = variable
        if where is None:
            return f".{name}"
        if isinstance(where, str):
            found = [module for module in self.modules if os.path.basename(module.path) == where]
            return found[0].whole(name) if len(found) == 1 else None
        for (path, line, function), scope in self.scopes.items():
            if line == where.co_firstlineno and function == where.co_name and os.path.realpath(path) == os.path.realpath(where.co_filename):
                return scope.whole(name)
        return None


def _flows(variables, paths):
    if "flows" not in _known:
        scripts = {where.co_filename for (where, _name), _inside in variables if where is not None and not isinstance(where, str)}
        files, left = [], _BYTES
        for path in sorted({*_files(None), *filter(is_own, {*scripts, *paths})}):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read(left + 1)
                left -= len(text)
                files.append((path, ast.parse(text)))
            except (OSError, SyntaxError, ValueError, RecursionError):
                left = -1
            if left < 0:
                break
        try:
            _known["flows"] = _Flows(files) if left >= 0 else None
        except RecursionError:
            _known["flows"] = None
    return _known["flows"]


def renewed(variables, paths):
    """(whether no value of any of these variables is made from its old value, "train.py:18": the only line that does so, or "").

    A variable: ((code of a function, file name of a module or None for an attribute, name), whether a container that it is has the tensor).
    The lines are those of the first. `paths`: of files that are to be read besides those of modules.
    """
    flows = _flows(variables, paths)
    if flows is None:
        return False, ""
    nodes = [(flows.find(variable), inside) for variable, inside in variables]
    lines = flows.grown(nodes[0][0])
    return all(flows.is_renewed(node, inside) for node, inside in nodes), lines.pop() if len(lines) == 1 else ""
