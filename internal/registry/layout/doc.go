// SPDX-License-Identifier: Apache-2.0

// Package layout reads releases from removable media or a disk, for nodes without a registry: it implements
// source.Source and images.Source for OCI image layouts in a directory or a tar file.
//
// # Words
//
// A layout has the files oci-layout and index.json, and blobs by digest (OCI image specification). A place is an open
// directory or tar file: one layout, or a tree of them. An entry is a descriptor of index.json. A name is
// repository:tag.
//
// # Names
//
// An entry is named by its annotations, io.containerd.image.name (ctr) and org.opencontainers.image.ref.name (skopeo,
// crane, buildah): either a whole name such as registry.suse.com/caasp/v4/velum:4.0.0-rev1, or a bare tag. A bare tag
// counts only in a tree, where the path of the layout is the repository: in
// registry.suse.com/caasp/v4/velum/index.json, 4.0.0-rev1 is the name above. Entries without a usable name are counted
// and logged.
//
// # Promises
//
//   - Open reads all names; later changes of the files need another Open.
//   - Size and digest of every manifest, config and layer are verified, before
//     containerd does the same.
//   - A missing or damaged blob is an error, but not release.ErrNotFound, which is
//     for tags.
//   - A name with two digests is an error. An ambiguous manifest (CVE-2021-41190) is
//     rejected.
//   - Only regular files inside of the directory are read. A tar file is read in
//     place, so it must not be compressed.
//   - Size, count and depth of the input are limited (limits.go).
//
// Why not `ctr images import`: it would write the floating tag's record at once, unapproved and unchecked. A compressed
// tar file is refused because finding a layer in it means unpacking all before it.
package layout
