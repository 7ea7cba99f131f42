// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"fmt"
	"testing"

	"github.com/kubic-project/image-update-agent/tags"
)

const listing = 10_000

// listed returns the tag list of a repository: the three forms, unordered; every eighth tag is unrecognized.
func listed() []string {
	var all []string
	for i := range listing {
		app := fmt.Sprintf("1.%d.%d", i*7%20, i*13%30)
		switch i % 8 {
		case 0:
			all = append(all, app)
		case 1, 2:
			all = append(all, fmt.Sprintf("%s-rev%d", app, i%12))
		case 3:
			all = append(all, fmt.Sprintf("%s-openssl%d", app, i))
		default:
			all = append(all, fmt.Sprintf("%s-rev%d-build%d.%d", app, i%12, i%9, i))
		}
	}
	return all
}

func parsed() []tags.Tag {
	var all []tags.Tag
	for _, text := range listed() {
		if tag, err := tags.Parse(text); err == nil {
			all = append(all, tag)
		}
	}
	return all
}

// BenchmarkNewestOf10000 searches a list of tags that are already parsed.
func BenchmarkNewestOf10000(b *testing.B) {
	follow := must(b, "1.0.0-rev1-build1.1")
	all := make([]tags.Tag, 0, listing)
	for known := parsed(); len(all) < listing; {
		all = append(all, known[:min(len(known), listing-len(all))]...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := tags.Newest(all, follow, tags.Major); !ok {
			b.Fatal("none")
		}
	}
}

// BenchmarkParseAndNewestOf10000 starts from the tags' text, as a poll does.
func BenchmarkParseAndNewestOf10000(b *testing.B) {
	texts, follow := listed(), must(b, "1.0.0-rev1-build1.1")
	all := make([]tags.Tag, 0, listing)
	b.ReportAllocs()
	for b.Loop() {
		all = all[:0]
		for _, text := range texts {
			if tag, err := tags.Parse(text); err == nil {
				all = append(all, tag)
			}
		}
		if _, ok := tags.Newest(all, follow, tags.Major); !ok {
			b.Fatal("none")
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	x, y := must(b, "v1.18.6-rev2-build3.8"), must(b, "v1.18.6-rev2-build3.19")
	b.ReportAllocs()
	for b.Loop() {
		tags.Compare(x, y)
	}
}
