// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// nullLists are the lists of a document that JSON would write as null.
func nullLists(v reflect.Value, at string) []string {
	var out []string
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = nullLists(v.Elem(), at)
		}
	case reflect.Slice:
		if v.IsNil() {
			return []string{at}
		}
		for n := range v.Len() {
			out = append(out, nullLists(v.Index(n), fmt.Sprint(at, "[", n, "]"))...)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.IsExported() && (options != "omitempty" || value.Kind() != reflect.Slice || value.Len() > 0) {
				out = append(out, nullLists(value, at+"."+name)...)
			}
		}
	}
	return out
}

func TestEmptyListsOfTheStatusAreLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		assert.Empty(t, nullLists(reflect.ValueOf(w.observe()), "current"))
		w.bad(1, "9.9")
		w.apply()
		s := w.observe()
		require.Equal(t, status.StateFailed, s.State)
		assert.Empty(t, nullLists(reflect.ValueOf(s), "failed"))
		l := start(t, newWorld(t), 0, 0)
		defer l.end()
		assert.Empty(t, nullLists(reflect.ValueOf(l.Status()), "empty node"))
	})
}
