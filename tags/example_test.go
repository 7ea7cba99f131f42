// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/tags"
)

func ExampleParse() {
	tag, err := tags.Parse("v1.18.6-rev2-build3.8")
	if err != nil {
		fmt.Println(err)
		return
	}
	intermediate, _ := tag.Intermediate()
	fmt.Println(tag.Form(), tag.App(), tag.Rev(), tag.Build())
	fmt.Println(intermediate, tag.Short())
	// Output:
	// long v1.18.6 2 3.8
	// v1.18.6-rev2 v1.18.6
}

func ExampleParse_errors() {
	for _, text := range []string{"1.5.4-rev5-build", "latest", "a/b"} {
		_, err := tags.Parse(text)
		switch {
		case errors.Is(err, tags.ErrMalformed):
			fmt.Println("its publisher should know:", tags.Reason(err))
		case errors.Is(err, tags.ErrUnrecognized):
			fmt.Println("count it:", text)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// its publisher should know: empty build
	// count it: latest
	// tags: "a/b": not an OCI tag: "/" at byte 1
}

func ExampleCompare() {
	var all []tags.Tag
	for _, text := range []string{"3.2.0", "3.2-rev10", "3.2", "3.2-rev9", "3.12"} {
		tag, err := tags.Parse(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		all = append(all, tag)
	}
	slices.SortFunc(all, tags.Compare)
	fmt.Println(all)
	// Output: [3.2 3.2-rev9 3.2-rev10 3.2.0 3.12]
}

func ExampleNewScheme() {
	s, err := tags.NewScheme("^(?P<version>.*)-alpine(?P<rev>[0-9.]+)$", tags.AnyVersions, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	from, _ := s.Parse("1.27.0-alpine3.19")
	to, _ := s.Parse("1.27.0-alpine3.20")
	_, err = s.Parse("1.27.1-slim")
	fmt.Println(tags.ChangeBetween(from, to))
	fmt.Println(err)
	// Output:
	// revision
	// tags: "1.27.1-slim": unrecognized: the pattern does not match it
}

func ExampleNewest() {
	var all []tags.Tag
	for _, text := range []string{"1.7.5-rev2", "1.7.5-rev3", "1.7.6-rev10", "1.7.6-rev9", "1.8.0-rev1", "v1.7.7-rev1"} {
		tag, _ := tags.Parse(text)
		all = append(all, tag)
	}
	newest, ok := tags.Newest(all, all[0], tags.Patch)
	fmt.Println(newest, ok)
	// Output: 1.7.6-rev10 true
}
