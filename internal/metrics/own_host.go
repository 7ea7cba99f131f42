// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/kubic-project/image-update-agent/agent/ownhost"

// ownHost has no series where no hosts.toml names the node's own host.
func (c *collector) ownHost(
	own *ownhost.Status, gauge setGauge, counter func(name string, value uint64, labels ...string),
) {
	if own == nil {
		return
	}
	for n, r := range own.Registries {
		if n == maxSeries {
			break
		}
		registry := label(r.Registry)
		gauge("own_host_tags", float64(len(r.Tags)), registry, string(r.Position))
		gauge("own_host_tags_unanswered", float64(len(r.Unanswered)), registry, string(r.Position))
	}
	for n, l := range own.Lost {
		if n == maxSeries {
			break
		}
		gauge("own_host_lost", 1, label(l.Registry), string(l.Wanted))
	}
	gauge("own_host_wanted_known", number(own.WantedError == ""))
	if a := own.Answers; a != nil {
		counter("own_host_answers_total", uint64(a.Served), "served")
		counter("own_host_answers_total", uint64(a.Unknown), "unknown")
		counter("own_host_answers_total", uint64(a.Refused), "refused")
	}
	gauge("own_host_up", number(own.Down == ""))
	gauge("own_host_table_saved", number(own.Error == ""))
}
