// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// PassedOver returns why kubelet, and so the agent, ignores a file of its directory: it is not a regular file, or has
// no Pod (pkg/kubelet/config/file.go, extractFromDir). nil if kubelet runs it, or if it looks like a broken pod
// manifest.
func PassedOver(f node.PodFile) error {
	if f.Err != nil && f.Followed == nil {
		if f.PassedOver {
			return f.Err
		}
		return nil
	}
	_, err := f.Parse()
	if _, is := errors.AsType[*manifests.NotPodError](err); is {
		return err
	}
	isNamedSo := slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(f.Name)))
	if err != nil && !isNamedSo && f.Defines() == "" {
		return err
	}
	return nil
}

// isPassedOver reports whether kubelet ignores the file and no setting expects a pod of it: no template, no
// configuration, and no record of one that it defined.
func (v *PodView) isPassedOver(rec record.Record, p policy.Policy) bool {
	if v.Disk == nil || v.Template != nil || p.Manage[v.File] || PassedOver(*v.Disk) == nil {
		return false
	}
	_, wrote := rec.Wrote[v.File]
	return !wrote && !slices.ContainsFunc(slices.Collect(maps.Keys(rec.Good)), func(key string) bool {
		return strings.HasPrefix(key, record.GoodKey(v.File, ""))
	})
}

// followReadOnly follows the content that kubelet reads from a pod manifest that the agent must not write. The file
// prevents writing its template.
func (v *PodView) followReadOnly() {
	if v.Disk == nil || v.Disk.Err == nil || v.Disk.Followed == nil || v.Template != nil {
		return
	}
	disk := *v.Disk
	v.ReadOnly = disk.Err
	disk.Data, disk.Followed, disk.Err = disk.Followed, nil, nil
	v.Disk = &disk
}

// followOwned makes a pod manifest written by the distribution read-only: an edit would last only until the
// distribution's next start.
func (v *PodView) followOwned(p policy.Policy) {
	if v.Owner = p.Owned[v.File]; v.Owner != "" {
		v.ReadOnly = fmt.Errorf("%s writes %s itself at each start", v.Owner, v.File)
		v.Override = record.Override{}
	}
}

// findDuplicates finds the pods that more than one file defines, among kubelet's files and templates that the agent
// would write.
func findDuplicates(files []node.PodFile, views []PodView) {
	defining := map[string][]node.PodFile{} // by pod
	var unread []node.PodFile
	add := func(f node.PodFile) {
		if f.IsUnread() {
			unread = append(unread, f)
		} else {
			defining[f.Defines()] = append(defining[f.Defines()], f)
		}
	}
	for _, f := range files {
		add(f)
	}
	for _, v := range views {
		if v.Template != nil && v.Managed && v.Err == nil {
			add(*v.Template)
		}
	}
	for n := range views {
		v := &views[n]
		var pods []string
		if v.Disk != nil {
			pods = append(pods, v.Disk.Defines())
		}
		if v.Template != nil && v.Managed && v.Err == nil {
			pods = append(pods, v.Pod.ID())
		}
		for _, pod := range pods {
			if pod != "" && !v.Duplicate.Is() {
				v.Duplicate = node.FindDuplicate(slices.Concat(defining[pod], unread), v.File, pod)
			}
		}
	}
}
