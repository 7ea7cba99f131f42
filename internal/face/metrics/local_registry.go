// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/kubic-project/image-update-agent/agent/localregistry"

// localRegistry has no series if no hosts.toml names the node's local registry.
func (c *collector) localRegistry(
	own *localregistry.Status, gauge setGauge, counter func(name string, value uint64, labels ...string),
) {
	if own == nil {
		return
	}
	for n, r := range own.Registries {
		if n == maxSeries {
			break
		}
		registry := label(r.Registry)
		gauge("local_registry_tags", float64(len(r.Tags)), registry, string(r.Position))
		gauge("local_registry_tags_unanswered", float64(len(r.Unanswered)), registry, string(r.Position))
	}
	for n, l := range own.Lost {
		if n == maxSeries {
			break
		}
		gauge("local_registry_lost", 1, label(l.Registry), string(l.Wanted))
	}
	gauge("local_registry_wanted_known", number(own.WantedError == ""))
	if a := own.Answers; a != nil {
		counter("local_registry_answers_total", uint64(a.Served), "served")
		counter("local_registry_answers_total", uint64(a.Unknown), "unknown")
		counter("local_registry_answers_total", uint64(a.Refused), "refused")
	}
	gauge("local_registry_up", number(own.Down == ""))
	gauge("local_registry_table_saved", number(own.Error == ""))
}
