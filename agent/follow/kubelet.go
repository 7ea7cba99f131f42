// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// PassedOver returns why kubelet passes over a file of its directory and so does the agent: it is no file, or has no
// Pod (pkg/kubelet/config/file.go, extractFromDir). nil: kubelet runs it, or it looks like a broken pod manifest.
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

// isPassedOver reports whether no setting expects a pod of the file that kubelet passes over: no template, no
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

// followReadOnly takes what kubelet reads of a pod manifest that the agent must not write. Where a template wants to
// be written there, the file is in its way.
func (v *PodView) followReadOnly() {
	if v.Disk == nil || v.Disk.Err == nil || v.Disk.Followed == nil || v.Template != nil {
		return
	}
	disk := *v.Disk
	v.ReadOnly = disk.Err
	disk.Data, disk.Followed, disk.Err = disk.Followed, nil, nil
	v.Disk = &disk
}

// findDuplicates finds the pods that more than one file defines: of kubelet's directory, or of a template that the
// agent would write there.
func findDuplicates(files []node.PodFile, views []PodView) {
	all := slices.Clone(files)
	for _, v := range views {
		if v.Template != nil && v.Managed && v.Err == nil {
			all = append(all, *v.Template)
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
				v.Duplicate = node.FindDuplicate(all, v.File, pod)
			}
		}
	}
}
