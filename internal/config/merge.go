// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
)

// defaults is the fragment below all others.
func defaults() fragment {
	from := origin{place: "default"}
	found := fragment{}
	leaves(schema(), "", func(path string, k key) {
		in := input{from: from, named: map[string]input{}}
		switch k.shape {
		case text:
			in.text = first(k.def)
		case list:
			for _, item := range k.def {
				in.list = append(in.list, input{from: from, text: item})
			}
		}
		found[path] = in
	})
	return found
}

func first(def []string) string {
	if len(def) == 0 {
		return ""
	}
	return def[0]
}

// merge lays fragments over each other, the last on top. Every key of the
// schema is in the result if the first fragment is defaults.
func merge(fragments ...fragment) fragment {
	merged := fragment{}
	leaves(schema(), "", func(path string, k key) {
		for _, f := range fragments {
			in, there := f[path]
			if !there {
				continue
			}
			switch {
			case k.shape == table:
				merged[path] = mergeTable(merged[path], in)
			case k.shape == records && !k.unnamed:
				merged[path] = mergeRecords(merged[path], in, k)
			default:
				merged[path] = in
			}
		}
	})
	return merged
}

func mergeTable(below, above input) input {
	merged := input{from: above.from, names: slices.Clone(below.names), named: map[string]input{}}
	maps.Copy(merged.named, below.named)
	for _, name := range above.names {
		if _, there := merged.named[name]; !there {
			merged.names = append(merged.names, name)
		}
		merged.named[name] = above.named[name]
	}
	return merged
}

// mergeRecords replaces whole records of the same name where they stand, and
// appends the others. Layered ones are all appended.
func mergeRecords(below, above input, k key) input {
	merged := input{from: above.from, list: slices.Clone(below.list)}
	name := k.keys[0].name
	for _, record := range above.list {
		at := slices.IndexFunc(merged.list, func(b input) bool { return b.named[name].text == record.named[name].text })
		if at < 0 || k.layered {
			merged.list = append(merged.list, record)
			continue
		}
		merged.list[at] = record
	}
	return merged
}
