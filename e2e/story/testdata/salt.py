# SPDX-License-Identifier: Apache-2.0
"""Reads packaging/salt as Salt does, for the tests. No Salt is needed, and none is verified healthy to work by it.

Takes one JSON request on stdin, answers on stdout:

  {"render": FILE, "fleet": {ID: NODE}, "pillar": {}, "test": BOOL}  -> {"states": [STATE]}
  {"stateful": STDOUT, "retcode": N}                   -> {"result": BOOL, "comment": TEXT, "changed": BOOL}

NODE is {"file": TEXT of /etc/salt/grains, "loaded": TEXT that the minion read last, "away": BOOL}. STATE is {"id",
"function", "args"}.

The rules: SLS files go through Jinja with undefined names as errors (salt/utils/templates.py), then through PyYAML's
safe loader with duplicate keys as errors (salt/utils/yamlloader.py). Each state is a mapping of functions to lists of
arguments with one key each (salt/state.py). Grains match in lower case, in lists too (salt/utils/data.py,
subdict_match). saltutil.refresh_grains answers before it has refreshed. A node that the master expects and that is
silent is {"failed": True} (salt/client, get_iter_returns). `stateful` is _reinterpreted_state in salt/states/cmd.py.
"""
import fnmatch
import json
import shlex
import sys

import jinja2
import yaml


class Loader(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, "found conflicting ID %r" % key, node.start_mark)
        return super().construct_mapping(node, deep)


def load(text):
    return yaml.load(text, Loader=Loader)


class Fleet:
    """The master's view of its nodes: saltutil.cmd asks them."""

    def __init__(self, nodes):
        self.file = {id: load(node["file"]) or {} for id, node in nodes.items()}
        self.loaded = {id: load(node.get("loaded", node["file"])) or {} for id, node in nodes.items()}
        # What the master targets by is what it was told last.
        self.told = dict(self.loaded)
        self.away = {id for id, node in nodes.items() if node.get("away")}
        self.refreshing = set()

    # By place only: the fifth argument has had two names.
    def cmd(self, target, function, arg, timeout, form, /):
        assert form == "compound" and isinstance(arg, list) and timeout > 0
        answers = {}
        for id in sorted(self.file, reverse=True):  # nodes answer in any order
            if not match(target, id, self.told[id]):
                continue
            if id in self.away or not match(target, id, self.loaded[id]):
                answers[id] = {"failed": True}
                continue
            answers[id] = {"ret": True, "retcode": 0}
            if function == "saltutil.refresh_grains":
                self.refreshing.add(id)
            elif function == "test.sleep":
                self.settle()
            elif function != "test.ping":
                raise ValueError(function)
        return answers

    def settle(self):
        for id in self.refreshing:
            self.loaded[id] = self.told[id] = self.file[id]
        self.refreshing = set()


def match(target, id, grains):
    """A compound target of grains, globs, brackets and words between them."""
    words = []
    for word in target.split():
        if word not in ("and", "or", "not", "(", ")"):
            word = str(matches_grain(word[2:], grains) if word.startswith("G@") else fnmatch.fnmatch(id, word))
        words.append(word)
    return eval(" ".join(words), {})  # True, False, and, or, not and brackets


def matches_grain(pattern, grains):
    key, value = pattern.split(":", 1)
    have = grains.get(key)
    have = have if isinstance(have, list) else [have]
    return any(fnmatch.fnmatch(str(one).lower(), value.lower()) for one in have)


def render(path, fleet, pillar, test):
    def pillar_get(name, default):
        found = pillar
        for key in name.split(":"):
            if not isinstance(found, dict) or key not in found:
                return default
            found = found[key]
        return found

    env = jinja2.Environment(undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])
    env.filters["json"] = lambda value: json.dumps(value, sort_keys=True)
    with open(path, encoding="utf-8") as handle:
        template = env.from_string(handle.read())
    return template.render(salt={"pillar.get": pillar_get, "saltutil.cmd": fleet.cmd}, pillar=pillar, saltenv="base",
                           opts={"test": test})


def states(text):
    for id, body in (load(text) or {}).items():
        assert isinstance(id, str), id
        for function, args in body.items():
            merged = {}
            for arg in args:
                (key, value), = arg.items()
                assert key not in merged, "%s: %s twice" % (id, key)
                merged[key] = value
            yield {"id": id, "function": function, "args": merged}


def stateful(stdout, retcode):
    state = {"result": retcode == 0, "comment": "", "changed": False}
    try:
        pairs = dict(item.split("=") for item in shlex.split(stdout.rstrip().rpartition("\n")[2]))
    except ValueError:
        return {"result": False, "comment": "Failed parsing script output!", "changed": True}
    state["changed"] = {"yes": True, "no": False}[pairs["changed"]]
    state["comment"] = pairs["comment"]
    return state


request = json.load(sys.stdin)
if "render" in request:
    fleet = Fleet(request.get("fleet") or {})
    text = render(request["render"], fleet, request.get("pillar") or {}, request.get("test", False))
    answer = {"states": list(states(text))}
else:
    answer = stateful(request["stateful"], request["retcode"])
json.dump(answer, sys.stdout)
