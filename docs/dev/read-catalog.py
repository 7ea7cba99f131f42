#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print what a channel of a release catalog offers: read-catalog.py URL REPOSITORY CHANNEL [IMAGE...]

URL is the registry, as https://registry.example.com. This is an example of a reader of catalog-format.md. It checks
digests, sizes, name and channel, and ignores what it does not know. It does not check signatures: run cosign verify.
"""
import gzip
import hashlib
import json
import sys
import urllib.request

TYPE = "application/vnd.kubic.image-catalog"
NOTE = "org.kubic.image-catalog."
TITLE = "org.opencontainers.image.title"
KNOWN = {"tag", "digest", "created", "set", "members", "rollout", "withdrawn", "critical", "op"}


def get(url, limit):
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.oci.image.manifest.v1+json, */*"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        data = answer.read(limit + 1)
    if len(data) > limit:
        sys.exit(f"{url}: more than {limit} bytes")
    return data


def blob(base, ref, limit):
    data = get(f"{base}/blobs/{ref['digest']}", ref["size"])
    if "sha256:" + hashlib.sha256(data).hexdigest() != ref["digest"]:
        sys.exit(f"{ref['digest']}: has another digest")
    text = gzip.decompress(data)  # a reader of untrusted catalogs stops at the limit
    if len(text) > limit:
        sys.exit(f"{ref['digest']}: more than {limit} bytes")
    return json.loads(text)


def pages(base, layers, images):
    """The pages of some images, or of all: from the manifest, or from its shards."""
    shards = [x for x in layers if x["mediaType"] == TYPE + ".shard.v1+gzip"]
    listed = {x["annotations"][TITLE]: x for x in layers if x["mediaType"] == TYPE + ".page.v1+gzip"}
    titles = [x["annotations"][TITLE] for x in shards]
    wanted = {max((t for t in titles if t <= i), default=None) for i in images} if images else set(titles)
    for shard in (s for s, title in zip(shards, titles) if title in wanted):
        listed.update({p["image"]: p for p in blob(base, shard, 64 << 10)["pages"]})
    return [(i, listed[i]) for i in sorted(images or listed) if i in listed]


def main(url, repository, channel, *images):
    base = f"{url}/v2/{repository}"
    manifest = json.loads(get(f"{base}/manifests/{channel}", 4 << 20))
    notes = manifest["annotations"]
    if manifest["artifactType"] != TYPE + ".v1" or notes[NOTE + "channel"] != channel:
        sys.exit(f"{channel}: not a channel of a catalog")
    for image, ref in pages(base, manifest["layers"], images):
        for r in blob(base, ref, 1 << 20)["releases"]:
            if "withdrawn" not in r and set(r.get("critical", [])) <= KNOWN:
                print(f"{image}:{r['tag']}@{r['digest']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
