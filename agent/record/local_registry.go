// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

// AwaySince returns the last answer of a registry for any of its repositories, if none of them answers now; nil if one
// does, or if none was asked.
func (r *Record) AwaySince(registry string) *time.Time {
	var last time.Time
	failed := false
	for name, s := range r.Sources {
		if localregistry.RegistryOf(name) != registry || s.Kind != "" {
			continue
		}
		if s.Failures == 0 || s.List {
			return nil
		}
		failed = true
		if s.LastSuccess.After(last) {
			last = s.LastSuccess
		}
	}
	if !failed || last.IsZero() {
		return nil
	}
	last = last.UTC()
	return &last
}
