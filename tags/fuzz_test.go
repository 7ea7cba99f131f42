// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubic-project/image-update-agent/tags"
)

// seeds adds the tables and the corpus.
func seeds(f *testing.F) []string {
	f.Helper()
	all := slices.Concat(
		slices.Sorted(maps.Keys(goodTags)), slices.Sorted(maps.Keys(malformedTags)),
		unrecognizedTags, invalidTags, ascendingTags, corpus(f))
	return slices.Concat(all, slices.Sorted(maps.Keys(generalTags)), slices.Sorted(maps.Keys(unorderedTags)))
}

func FuzzParse(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkAgainstGrammar(t, text)
		for _, scheme := range schemes(t) {
			checkScheme(t, scheme, text)
		}
	})
}

// checkScheme checks the promises of every scheme: each text has a class; a tag returns its text; its shorter forms are
// tags.
func checkScheme(t *testing.T, s tags.Scheme, text string) {
	t.Helper()
	tag, err := s.Parse(text)
	if classOf(tag, err) == "unclassed" {
		t.Fatalf("%v %q: %v", s, text, err)
	}
	if err != nil {
		if !tag.IsZero() || len(err.Error()) > 8*128+100 {
			t.Fatalf("%v %q: %q, %v", s, text, tag, err)
		}
		return
	}
	if tag.String() != text || !ociGrammar.MatchString(text) || tag.Name() == "" || tag.App() == "" {
		t.Fatalf("%v %q: %q, name %q, app %q", s, text, tag, tag.Name(), tag.App())
	}
	if tags.ChangeBetween(tag, tag) != tags.Same || !tags.InLine(tag, tag) || tags.WhyNot(tag, tag) != "" {
		t.Fatalf("%v %q: %v to itself", s, text, tags.ChangeBetween(tag, tag))
	}
	if tag.Form() == tags.Single && tag.Short() != tag {
		t.Fatalf("%v %q: short %q", s, text, tag.Short())
	}
	intermediate, ok := tag.Intermediate()
	if ok != (tag.Form() == tags.Intermediate || tag.Form() == tags.Long) {
		t.Fatalf("%v %q: intermediate %q", s, text, intermediate)
	}
	if ok && (intermediate.Form() != tags.Intermediate || intermediate.Rev() != tag.Rev() ||
		intermediate.App() != tag.App() || tag.Short().App() != tag.App()) {
		t.Fatalf("%v %q: intermediate %q, short %q", s, text, intermediate, tag.Short())
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
		for _, scheme := range schemes(t) {
			checkOrderOf(t, scheme, a, b, c)
		}
	})
}

// lenient cuts a text down to a tag of SUSE's scheme, so that most fuzz inputs reach Compare. The zero tag is a valid
// result.
func lenient(text string) tags.Tag {
	text = text[:min(len(text), 128)]
	for {
		if tag, err := tags.SUSEOnly().Parse(text); err == nil || text == "" {
			return tag
		}
		text = strings.TrimSuffix(text[:len(text)-1], "-")
	}
}
