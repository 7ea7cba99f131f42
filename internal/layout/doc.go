// SPDX-License-Identifier: Apache-2.0

// Package layout is the source of releases on a disk, for nodes that no
// registry reaches: it implements source.Source and images.Source over
// OCI image layouts, in a directory or in a tar file.
//
// # Words
//
// A layout is what the OCI image specification calls one: the files oci-layout
// and index.json, and blobs by digest. A place is the directory or tar file
// that was opened; it is one layout, or a tree of them. An entry is a
// descriptor of index.json. A name is repository:tag.
//
// # Names
//
// An entry is named by its annotations, io.containerd.image.name (ctr) and
// org.opencontainers.image.ref.name (skopeo, crane, buildah): either a whole
// name such as registry.suse.com/caasp/v4/velum:4.0.0-rev1, or a bare tag. A
// bare tag says nothing of the repository, so it counts only in a tree, where
// the path of the layout is the repository: in
// registry.suse.com/caasp/v4/velum/index.json, 4.0.0-rev1 is the name above.
// Entries without a usable name are counted and logged.
//
// # Promises
//
//   - Open is one look: what is said of names afterwards is one state, whatever
//     happens to the files. To see a change, open again.
//   - Every manifest and config is read against its digest and size, every layer
//     against its size, and at its end against its digest, before containerd
//     does the same. A file from a stick has no fast path.
//   - A blob that is missing or torn is a damaged place, which has no answer. It
//     is never release.ErrNotFound: that says of a tag that it is gone.
//   - A name that two digests claim has no answer, either; the others do. An
//     ambiguous manifest (CVE-2021-41190) is refused.
//   - Nothing is read outside of the directory, symbolic links or not, and
//     nothing but regular files. A tar file is read in place, never extracted;
//     for that it must not be compressed.
//   - What is read is bounded in size, count and depth (limits.go).
package layout
