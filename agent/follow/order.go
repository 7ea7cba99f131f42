// SPDX-License-Identifier: Apache-2.0

package follow

// Unmanaged says why a pod manifest is not ours to change.
func (v *PodView) Unmanaged() string {
	if v.Template != nil {
		return v.File + " is of the control plane and is not listed under manage"
	}
	return v.File + " has no template and is not listed under manage"
}
