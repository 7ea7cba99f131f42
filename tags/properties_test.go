// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"cmp"
	"errors"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/tags"
)

// coreGrammar is SUSE's grammar written a second time, as the oracle of Parse.
var coreGrammar = regexp.MustCompile(
	`^(v?(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))*)(?:-rev(0|[1-9][0-9]*)(?:-build((?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))*))?)?\z`)

var ociGrammar = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\z`)

// Each test creates its own generators: rapid's are not safe for concurrent use by parallel tests.

// number draws from few values, so that tags collide, and from numbers beyond 64 bits.
func number() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"0", "1", "2", "9", "10", "19"}),
		rapid.StringMatching(`[1-9][0-9]{0,24}`),
	)
}

func spelledTag() *rapid.Generator[string] {
	num := number()
	numbers := rapid.SliceOfN(num, 1, 2)
	return rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"", "", "v"}).Draw(t, "v") + strings.Join(numbers.Draw(t, "app"), ".")
		if rapid.Bool().Draw(t, "has rev") {
			text += "-rev" + num.Draw(t, "rev")
			if rapid.Bool().Draw(t, "has build") {
				text += "-build" + strings.Join(numbers.Draw(t, "build"), ".")
			}
		}
		return text
	}).Filter(func(text string) bool { return len(text) <= 128 })
}

func goodTag() *rapid.Generator[tags.Tag] {
	spelled := spelledTag()
	return rapid.Custom(func(t *rapid.T) tags.Tag {
		tag, err := tags.Parse(spelled.Draw(t, "text"))
		if err != nil {
			t.Fatalf("good tag: %v", err)
		}
		return tag
	})
}

// nearTag draws a valid tag with a few bytes changed, where parsers tend to fail.
func nearTag() *rapid.Generator[string] {
	spelled := spelledTag()
	return rapid.Custom(func(t *rapid.T) string {
		text := []byte(spelled.Draw(t, "text"))
		for range rapid.IntRange(0, 2).Draw(t, "edits") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text[at] = rapid.SampledFrom([]byte("019.-_vVrRebu+/")).Draw(t, "byte")
		}
		return string(text)
	})
}

func TestParseAgreesWithTheGrammar(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(nearTag(), spelledTag(), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		checkAgainstGrammar(t, text.Draw(t, "text"))
	})
}

// fataler is the common interface of testing.T and rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkAgainstGrammar compares Parse with the oracle and checks that String returns the parsed text.
func checkAgainstGrammar(t fataler, text string) {
	t.Helper()
	tag, err := tags.SUSEOnly().Parse(text)
	want := coreGrammar.FindStringSubmatch(text)
	if !ociGrammar.MatchString(text) {
		want = nil
	}
	if (want != nil) != (err == nil) {
		t.Fatalf("%q: grammar %v, parse %v", text, want != nil, err)
	}
	if errors.Is(err, tags.ErrInvalid) == ociGrammar.MatchString(text) {
		t.Fatalf("%q: %v", text, err)
	}
	if err == nil && !slices.Equal(want, []string{tag.String(), tag.App(), tag.Rev(), tag.Build()}) {
		t.Fatalf("%q: %q %q %q", text, tag.App(), tag.Rev(), tag.Build())
	}
	if general, errGeneral := tags.Parse(text); err == nil && general != tag ||
		errors.Is(err, tags.ErrMalformed) && errGeneral == nil {
		t.Fatalf("%q: %v, and without settings %v, %v", text, err, general, errGeneral)
	}
	if tag, err := tags.Parse(text); string(tags.Classify(text)) != string(classOf(tag, err)) {
		t.Fatalf("%q: class %s, error %v", text, tags.Classify(text), err)
	}
}

func classOf(tag tags.Tag, err error) tags.Class {
	switch {
	case err == nil:
		return tags.Class(tag.Form().String())
	case errors.Is(err, tags.ErrMalformed):
		return tags.ClassMalformed
	case errors.Is(err, tags.ErrUnrecognized):
		return tags.ClassUnrecognized
	case errors.Is(err, tags.ErrInvalid):
		return tags.ClassInvalid
	}
	return "unclassed"
}

// oracleCompare is Compare written a second time, with big integers.
func oracleCompare(a, b tags.Tag) int {
	app := func(t tags.Tag) []*big.Int { return bigs(strings.TrimPrefix(t.App(), "v")) }
	return cmp.Or(
		slices.CompareFunc(app(a), app(b), (*big.Int).Cmp),
		slices.CompareFunc(bigs(a.Rev()), bigs(b.Rev()), (*big.Int).Cmp),
		slices.CompareFunc(bigs(a.Build()), bigs(b.Build()), (*big.Int).Cmp),
		cmp.Compare(a.String(), b.String()),
	)
}

func bigs(dotted string) []*big.Int {
	var all []*big.Int
	for part := range strings.SplitSeq(dotted, ".") {
		if n, ok := new(big.Int).SetString(part, 10); ok {
			all = append(all, n)
		}
	}
	return all
}

func TestOrderIsTotal(t *testing.T) {
	t.Parallel()
	tag := goodTag()
	rapid.Check(t, func(t *rapid.T) {
		checkOrder(t, tag.Draw(t, "a"), tag.Draw(t, "b"), tag.Draw(t, "c"))
	})
}

// checkOrder checks that Compare is a total order and agrees with its oracle.
func checkOrder(t fataler, a, b, c tags.Tag) {
	t.Helper()
	if tags.Compare(a, a) != 0 {
		t.Fatalf("not reflexive: %s", a)
	}
	if tags.Compare(a, b) != -tags.Compare(b, a) {
		t.Fatalf("not antisymmetric: %s, %s", a, b)
	}
	if (tags.Compare(a, b) == 0) != (a.String() == b.String()) {
		t.Fatalf("equality invented or lost: %s, %s", a, b)
	}
	if tags.Compare(a, b) <= 0 && tags.Compare(b, c) <= 0 && tags.Compare(a, c) > 0 {
		t.Fatalf("not transitive: %s, %s, %s", a, b, c)
	}
	if want := oracleCompare(a, b); tags.Compare(a, b) != want {
		t.Fatalf("%s, %s: order %d, want %d", a, b, tags.Compare(a, b), want)
	}
}

func TestChangeAgreesWithOrder(t *testing.T) {
	t.Parallel()
	tag := goodTag()
	rapid.Check(t, func(t *rapid.T) {
		checkChange(t, tag.Draw(t, "from"), tag.Draw(t, "to"))
	})
}

// checkChange checks that ChangeBetween agrees with Compare.
func checkChange(t fataler, from, to tags.Tag) {
	t.Helper()
	change, order := tags.ChangeBetween(from, to), tags.Compare(from, to)
	fits := false
	switch {
	case from.HasV() != to.HasV():
		fits = change == tags.Unrelated
	case change == tags.Lower:
		fits = order > 0 && tags.ChangeBetween(to, from) > tags.Same
	case change == tags.Same:
		fits = from.App() == to.App() && tags.ChangeBetween(to, from) == tags.Same &&
			(order == 0) == (from.Form() == to.Form())
	case change > tags.Same:
		fits = order < 0 && tags.ChangeBetween(to, from) == tags.Lower &&
			(change >= tags.Patch) == (from.App() != to.App())
	}
	if !fits {
		t.Fatalf("%s to %s: change %v, order %d", from, to, change, order)
	}
}

func TestNewestIsTheHighestAllowed(t *testing.T) {
	t.Parallel()
	one := goodTag()
	many := rapid.SliceOf(one)
	rapid.Check(t, func(t *rapid.T) {
		all := many.Draw(t, "tags")
		follow := one.Draw(t, "follow")
		if len(all) > 0 && rapid.Bool().Draw(t, "follow one of them") {
			follow = rapid.SampledFrom(all).Draw(t, "followed")
		}
		largest := tags.Change(rapid.IntRange(int(tags.Same), int(tags.Major)).Draw(t, "largest"))
		allowed := slices.DeleteFunc(slices.Clone(all), func(tag tags.Tag) bool {
			change := tags.ChangeBetween(follow, tag)
			return !tags.InLine(follow, tag) || change < tags.Same || change > largest
		})

		got, ok := tags.Newest(all, follow, largest)
		if ok != (len(allowed) > 0) {
			t.Fatalf("%v of %v", ok, allowed)
		}
		if ok && got != slices.MaxFunc(allowed, tags.Compare) {
			t.Fatalf("%s of %v", got, allowed)
		}
	})
}
