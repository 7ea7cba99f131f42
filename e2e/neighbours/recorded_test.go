// SPDX-License-Identifier: Apache-2.0

//go:build !neighbours

package neighbours

import "testing"

// Without the tag neighbours, the code of etcd and client-go is not compiled: their answers are those of the record.

func askedEtcd(*testing.T, string) func([]byte) []byte { return nil }

func askedClientcmd(*testing.T, string) func([]byte) []byte { return nil }
