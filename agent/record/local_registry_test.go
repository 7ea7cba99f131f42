// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/record"
)

func TestAwaySince(t *testing.T) {
	t.Parallel()
	const suse = "registry.suse.com"
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	before, after := record.SourceRecord{Failures: 2, LastSuccess: april.Add(-time.Hour)}, record.SourceRecord{Failures: 1, LastSuccess: april}
	for title, c := range map[string]struct {
		sources record.Entries[record.SourceRecord]
		want    *time.Time
	}{
		"not asked":                  {},
		"it is another registry's":   {sources: record.Entries[record.SourceRecord]{"registry.suse.com.example/a": after}},
		"none answers":               {record.Entries[record.SourceRecord]{suse + "/a": before, suse + "/b": after}, &april},
		"none has answered":          {sources: record.Entries[record.SourceRecord]{suse + "/a": {Failures: 1}}},
		"another repository answers": {sources: record.Entries[record.SourceRecord]{suse + "/a": after, suse + "/b": {LastSuccess: april}}},
		"its tag list fails alone":   {sources: record.Entries[record.SourceRecord]{suse + "/a": {Failures: 1, LastSuccess: april, List: true}}},
		"a catalog's answers":        {sources: record.Entries[record.SourceRecord]{suse + "/c:prod": {Failures: 1, LastSuccess: april, Kind: record.SourceCatalog}}},
	} {
		assert.Equal(t, c.want, (&record.Record{Sources: c.sources}).AwaySince(suse), title)
	}
}
