# SPDX-License-Identifier: Apache-2.0
"""Reads and writes a grains file as Salt does, for the tests of package grains.

Speaks JSON lines on stdin and stdout:

  {"load": BASE64}            -> {"libyaml": RESULT, "pure": RESULT}
  {"setval": [FILE, KEY, VALUE]} -> {}, or {"error": TEXT}

RESULT is {"value": TYPED} or {"error": TEXT}. TYPED keeps what JSON would
lose: {"map": [[TYPED, TYPED], ...]}, {"list": [TYPED, ...]}, {"str": TEXT}, or
{TYPENAME: REPR} for the rest.

The rules are those of salt/utils/yamlloader.py: PyYAML's safe loader (on
libyaml where PyYAML has it), where a duplicate key is an error, a timestamp
stays a string and leading zeros of an integer do not mean octal. setval does
what salt/modules/grains.py does: read all, change one key, truncate, dump.
"""
import base64
import json
import sys

import yaml


def loader(base):
    """Salt's rules on top of one of PyYAML's safe loaders."""

    class Loader(base):
        def construct_mapping(self, node, deep=False):
            self.flatten_mapping(node)
            result = {}
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=True)
                hash(key)
                if key in result:
                    raise yaml.constructor.ConstructorError(
                        None, None, "found conflicting ID %r" % key, key_node.start_mark)
                result[key] = self.construct_object(value_node, deep=deep)
            return result

        def flatten_mapping(self, node):
            # PyYAML lets an explicit key win by coming later; here keys that
            # the mapping has itself must not be merged, or they are duplicates.
            own = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            had = {id(key) for key, _ in node.value}
            super().flatten_mapping(node)
            node.value = [(key, value) for key, value in node.value if id(key) in had or key.value not in own]

        def construct_decimal(self, node):
            digits = node.value
            if digits.startswith("0") and not digits.startswith(("0b", "0x")):
                node.value = digits.lstrip("0") or "0"
            return self.construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_decimal)
    Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_scalar)
    Loader.add_constructor("tag:yaml.org,2002:python/unicode", Loader.construct_yaml_str)
    return Loader


LOADERS = {"libyaml": loader(yaml.CSafeLoader), "pure": loader(yaml.SafeLoader)}


def typed(value):
    if isinstance(value, dict):
        return {"map": [[typed(k), typed(v)] for k, v in value.items()]}
    if isinstance(value, list):
        return {"list": [typed(v) for v in value]}
    if isinstance(value, str):
        return {"str": value}
    return {type(value).__name__: repr(value)}


def load(data):
    results = {}
    for name, kind in LOADERS.items():
        try:
            results[name] = {"value": typed(yaml.load(data, Loader=kind))}
        except Exception as exc:  # Salt: "Bad syntax in grains file! Skipping."
            results[name] = {"error": "%s: %s" % (type(exc).__name__, exc)}
    return results


def setval(path, key, value):
    with open(path, "rb") as handle:
        grains = yaml.load(handle, Loader=LOADERS["libyaml"])
    if not isinstance(grains, dict):
        grains = {}
    grains[key] = value
    with open(path, "w+", encoding="utf-8") as handle:
        yaml.safe_dump(grains, handle, default_flow_style=False)
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "load" in request:
        answer = load(base64.b64decode(request["load"]))
    else:
        try:
            answer = setval(*request["setval"])
        except Exception as exc:
            answer = {"error": "%s: %s" % (type(exc).__name__, exc)}
    print(json.dumps(answer), flush=True)
