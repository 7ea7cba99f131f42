// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubic-project/image-update-agent/tags"
)

// seeds are the tables and the corpus.
func seeds(f *testing.F) []string {
	f.Helper()
	all := slices.Concat(
		slices.Sorted(maps.Keys(goodTags)), slices.Sorted(maps.Keys(malformedTags)),
		foreignTags, invalidTags, ascendingTags, corpus(f))
	for _, name := range tags.DialectNames() {
		dialect, _ := tags.ParseDialect(name)
		all = append(all, dialectTags[dialect].intermediate, dialectTags[dialect].long)
	}
	for _, refusal := range dialectRefusals {
		all = append(all, refusal.text)
	}
	return all
}

func FuzzParse(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkAgainstGrammar(t, text)
		for dialect := range dialectTags {
			checkDialect(t, dialect, text)
		}
	})
}

// checkDialect holds what every grammar promises: each text has a class, and a
// tag gives back its text, a wire form that registries take, and its parts.
func checkDialect(t *testing.T, dialect tags.Dialect, text string) {
	t.Helper()
	tag, err := dialect.Parse(text)
	if classOf(tag, err) == "unclassed" {
		t.Fatalf("%v %q: %v", dialect, text, err)
	}
	if err != nil {
		if !tag.IsZero() || len(err.Error()) > 4*128+100 {
			t.Fatalf("%v %q: %q, %v", dialect, text, tag, err)
		}
		return
	}
	if tag.String() != text || !ociGrammar.MatchString(tag.Wire()) {
		t.Fatalf("%v %q: %q, wire %q", dialect, text, tag, tag.Wire())
	}
	wire, err := dialect.Parse(tag.Wire())
	if err != nil || partsOf(wire) != partsOf(tag) {
		t.Fatalf("%v %q: wire %q: %v", dialect, text, tag.Wire(), err)
	}
	short, err := dialect.Parse(tag.Short().String())
	if err != nil || short != tag.Short() || short.Form() != tags.Short || short.App() != tag.App() {
		t.Fatalf("%v %q: short %q: %v", dialect, text, short, err)
	}
	intermediate, ok := tag.Intermediate()
	if ok != (tag.Form() != tags.Short) {
		t.Fatalf("%v %q: intermediate %q", dialect, text, intermediate)
	}
	if !ok {
		return
	}
	again, err := dialect.Parse(intermediate.String())
	if err != nil || again != intermediate || again.Form() != tags.Intermediate || again.Rev() != tag.Rev() {
		t.Fatalf("%v %q: intermediate %q: %v", dialect, text, intermediate, err)
	}
}

func FuzzCompare(f *testing.F) {
	all := seeds(f)
	for i := range all {
		f.Add(all[i], all[(i+1)%len(all)], all[(i+7)%len(all)])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		tagA, tagB, tagC := lenient(a), lenient(b), lenient(c)
		checkOrder(t, tagA, tagB, tagC)
		if !tagA.IsZero() && !tagB.IsZero() {
			checkChange(t, tagA, tagB)
		}
	})
}

// lenient reads a core tag out of a text, cutting what does not fit, so that
// most inputs of the fuzzer reach the order; the zero tag counts too.
func lenient(text string) tags.Tag {
	text = text[:min(len(text), 128)]
	for {
		if tag, err := tags.Parse(text); err == nil || text == "" {
			return tag
		}
		text = strings.TrimSuffix(text[:len(text)-1], "-")
	}
}
