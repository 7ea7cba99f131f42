// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

// checkFiles looks at what the agent reads and writes.
func (n Node) checkFiles() []Finding {
	podManifests := checkDirectory("pod manifests", n.PodManifests, Fail,
		"join the node to a cluster, which creates the directory; or set podManifests to kubelet's staticPodPath")
	findings := append([]Finding{n.checkTemplates(), podManifests}, checkPodManifests(n.PodManifests)...)
	findings = append(findings, checkWritable(n.written())...)
	return append(findings, checkDisk(n.StateDir))
}

func checkDirectory(check, path, verdict, remedy string) Finding {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.IsDir():
		err = fmt.Errorf("%s: not a directory", path)
	default:
		return ok(check, path)
	}
	return Finding{check, verdict, err.Error(), remedy}
}

// packagedTemplates is the default of templates.
const packagedTemplates = "usr/share/caasp-container-manifests/manifests"

// checkTemplates wants templates, unless the admin names pod manifests that need none:
// nodes of kubeadm have none.
func (n Node) checkTemplates() Finding {
	_, err := os.Stat(n.Templates)
	byDefault := n.Templates == n.at(packagedTemplates)
	if errors.Is(err, fs.ErrNotExist) && byDefault && len(n.Manage) > 0 {
		return skipped("templates", "none; the agent updates the pod manifests under manage without templates")
	}
	remedy := "correct templates"
	if byDefault {
		remedy = "install the package with the pod manifest templates, " +
			"or list the pod manifests to update under manage"
	}
	if info, err := os.Stat(n.Templates); err == nil && isOpen(info) {
		return openFinding("templates", n.Templates, info)
	}
	return checkDirectory("templates", n.Templates, Warn, remedy)
}

// isOpen reports whether others may write to a file or directory: then the daemon does not use it.
func isOpen(info fs.FileInfo) bool {
	return info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0
}

func openFinding(check, path string, info fs.FileInfo) Finding {
	return fail(check, fmt.Errorf("%s: writable by other users (%s)", path, info.Mode().Perm()), "chmod go-w "+path)
}

// checkPodManifests names files that kubelet reads as pods by mistake, as it reads every file without a
// leading dot; and pod manifests that an apply has left set aside, whose pods are not there.
func checkPodManifests(dir string) []Finding {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil // the directory's own check has said so
	case err != nil:
		return []Finding{warn("set aside", "not checked: "+err.Error(), asRoot)}
	}
	var stray, away []Finding
	for _, e := range entries {
		name, path := e.Name(), filepath.Join(dir, e.Name())
		switch isHidden := strings.HasPrefix(name, "."); {
		case nodefile.SetAsideName(name) != "":
			away = append(away, warn("set aside", path+": its pod is stopped, unless an apply is running right now",
				"run image-update-agent put-back"))
		case !isHidden && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) && isRead(path):
			stray = append(stray, warn("pod manifests", fmt.Sprintf("kubelet also reads %s as a pod manifest", path),
				"move backups out of the directory, or give them a leading dot"))
		}
	}
	if len(away) == 0 {
		away = append(away, ok("set aside", "no pod manifest"))
	}
	return append(stray, away...)
}

// isRead reports whether kubelet reads a file: it follows symlinks, and passes over what is no regular file.
func isRead(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// written are the directories and the files that the daemon writes.
func (n Node) written() (dirs, files []string) {
	dirs = []string{n.PodManifests, n.StateDir, n.RuntimeDir}
	if n.Grains.Enabled {
		dirs, files = append(dirs, filepath.Dir(n.Grains.Path)), append(files, n.Grains.Path)
	}
	if entries, err := os.ReadDir(n.PodManifests); err == nil {
		for _, e := range entries {
			isOther := strings.HasPrefix(e.Name(), ".") && nodefile.SetAsideName(e.Name()) == ""
			if !isOther && !e.IsDir() { // kubelet passes over both
				files = append(files, filepath.Join(n.PodManifests, e.Name()))
			}
		}
	}
	return dirs, files
}

// checkWritable looks at what the daemon has to write, from outside of its sandbox:
// whose it is, who else may write it, whether its file system is writable, and whether it is immutable.
func checkWritable(dirs, files []string) []Finding {
	const check = "writable"
	var out []Finding
	unseen := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			out = append(out, warn(check, "not checked: "+err.Error(), asRoot))
		}
	}
	for _, dir := range dirs {
		readOnly, err := isReadOnly(dir)
		unseen(err)
		if readOnly {
			out = append(out, fail(check, fmt.Errorf("%s: read-only filesystem", dir),
				"mount it writable; on a node with a read-only root, /etc and /var are writable. After a disk error, see dmesg"))
		}
	}
	for _, path := range append(dirs, files...) {
		owned, err := checkOwner(path)
		unseen(err)
		out = append(out, owned...)
		flags, err := attributes(path)
		unseen(err)
		out = append(out, checkAttributes(path, flags)...)
	}
	if len(out) > 0 {
		return out
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	if len(dirs) == 0 {
		return []Finding{skipped(check, "not created yet")}
	}
	return []Finding{ok(check, strings.Join(dirs, ", "))}
}

// checkOwner names what another user owns or may write to: the daemon neither reads nor replaces it.
func checkOwner(path string) (out []Finding, err error) {
	const check = "writable"
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if is && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		err := fmt.Errorf("%s: owned by user %d, who could change what root runs", path, stat.Uid)
		out = append(out, fail(check, err, "chown root "+path))
	}
	if isOpen(info) {
		out = append(out, openFinding(check, path, info))
	}
	return out, nil
}

func checkAttributes(path string, attributes uint64) []Finding {
	if attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) == 0 {
		return nil
	}
	return []Finding{fail("writable", fmt.Errorf("%s: immutable (chattr)", path), "chattr -ia "+path)}
}

// attributes are those of statx(2), which has what chattr sets without opening the file.
func attributes(path string) (uint64, error) {
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &x)
	if err != nil {
		return 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return x.Attributes & x.Attributes_mask, nil
}

const (
	// recordSpace is what the record and the files that wait may take, in bytes, many
	// times over: a record of 1,000 images has less than 1 MB.
	recordSpace = 64 << 20
	// recordLeast is what one record and the copy that replaces it need at least: with
	// less nothing that is decided can be kept.
	recordLeast = 1 << 20
)

// checkDisk looks at the file system of the agent's own record.
func checkDisk(dir string) Finding {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fail("disk", fmt.Errorf("%s: %w", dir, err), "check the filesystem")
	}
	return diskFinding(dir, float64(fs.Bavail)*float64(fs.Bsize)) // their types differ between architectures
}

func diskFinding(dir string, free float64) Finding {
	const check, remedy = "disk", "free space: the agent keeps its record there"
	detail := fmt.Sprintf("%s: %s free", dir, policy.Bytes(int64(free)))
	switch {
	case free < recordLeast:
		return fail(check, fmt.Errorf("%s: full: the agent cannot save approvals, holds and rollback targets", detail),
			remedy)
	case free < recordSpace:
		return warn(check, detail, remedy)
	default:
		return ok(check, detail)
	}
}

// checkKeys lists the keys that signatures are verified with, by fingerprint,
// where a repository wants signatures; each file that does not count is a finding.
func checkKeys(repositories []config.Repository, dirs []string) []Finding {
	const check = "signature keys"
	strictest := ""
	for _, r := range repositories {
		if r.Signatures == "require" || r.Signatures == "warn" && strictest == "" {
			strictest = r.Signatures
		}
	}
	if strictest == "" {
		return []Finding{skipped(check, "no repository requires signatures")}
	}
	return checkKeyFiles(check, "signatureKeys", strictest, dirs, 1)
}

// checkCatalogKeys does the same for the keys of the release catalog.
func checkCatalogKeys(c config.Catalog, others []string) []Finding {
	const check = "catalog keys"
	switch {
	case c.Repository == "":
		return nil
	case c.Signatures == "off":
		return []Finding{warn(check, "the release catalog is not verified (catalog.signatures: off)",
			"set it to require and set catalog.keys: otherwise anyone who can write to the registry can promote releases")}
	case len(c.Keys) > 0:
		return checkKeyFiles(check, "catalog.keys", c.Signatures, c.Keys, c.RequiredKeys)
	default:
		return checkKeyFiles(check, "signatureKeys", c.Signatures, others, c.RequiredKeys)
	}
}

// checkKeyFiles lists the keys. require is how many of them must have signed.
func checkKeyFiles(check, setting, strictest string, dirs []string, require int) []Finding {
	var refused, unread []Finding
	var loaded []string
	for _, f := range signature.KeyFiles(dirs) {
		switch {
		case f.Err == nil:
			loaded = append(loaded, f.String())
		case f.IsDir:
			unread = append(unread, warn(check, fmt.Sprintf("cannot read a directory of signature keys: %v", f.Err),
				"correct "+setting))
		default:
			refused = append(refused, warn(check, fmt.Sprintf("signature key ignored: %s: %v", f.Path, f.Err),
				"correct or remove the file: a key is a *.pem file with one public key"))
		}
	}
	if len(loaded) > 0 {
		refused = append(refused, unread...)
	}
	_, err := signature.New(signature.Options{Dirs: dirs, Require: require}).Keys(context.Background())
	if err == nil {
		text := strings.Join(loaded, ", ")
		if require > 1 {
			text += fmt.Sprintf("; %d of them must have signed", require)
		}
		return append(refused, ok(check, text))
	}
	remedy := "put the publisher's public key there as a *.pem file, or set " + setting
	if strictest == "require" {
		return append(refused, fail(check, err, remedy+"; until then the agent stages no image that requires a signature"))
	}
	return append(refused, warn(check, err.Error(), remedy))
}
