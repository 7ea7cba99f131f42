// SPDX-License-Identifier: Apache-2.0

package etcdlock

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// value is the value of the key while a node has the lock. A free lock has no key, or an empty value.
type value struct {
	Holder  string    `json:"holder"`
	Machine string    `json:"machine"`
	Since   time.Time `json:"since"`

	revision int64  // of the key; 0: there is none
	note     string // a text that is not from an agent, such as a person's: it holds the lock
}

// parse reads the value of a key. What is neither empty nor an agent's is a holder whose name it is.
func parse(data []byte) (v value) {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && (json.Unmarshal(data, &v) != nil || v.Holder == "") {
		return value{note: outside.Line(string(data), maxHolder)}
	}
	v.Since = outside.Time(v.Since) // it can be written again
	return v
}

func (v value) isFree() bool { return v.Holder == "" && v.note == "" }

// text returns the value for the key.
func (v value) text() string {
	data, _ := json.Marshal(v)
	return string(data)
}

// asHolder returns the holder for people.
func (v value) asHolder() fleet.LockHolder {
	if v.note != "" {
		return fleet.LockHolder{ID: v.note}
	}
	return fleet.LockHolder{ID: outside.Line(v.Holder, maxHolder), Since: v.Since}
}
