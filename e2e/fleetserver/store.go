// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Store is an etcd with its JSON gateway. It asks the first member that answers.
type Store struct {
	URLs   []string
	Client *http.Client // nil: without TLS
}

// patience limits a member's answer. Without a leader it returns an error after 7 s.
const patience = time.Minute

// rounds is how often all members are asked: a request during an election fails, and on a busy machine, where members
// take their leader for dead, they elect one at any time. A Put that has been done changes nothing when it is repeated.
const rounds = 2

// Get returns a value and its version; version 0 if there is none.
func (s Store) Get(ctx context.Context, key string) (value []byte, version int64, err error) {
	var answer struct {
		KVs []struct {
			Value   []byte `json:"value"`
			Version string `json:"version"`
		} `json:"kvs"`
	}
	if err := s.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(key)}, &answer); err != nil {
		return nil, 0, err
	}
	if len(answer.KVs) == 0 {
		return nil, 0, nil
	}
	version, err = strconv.ParseInt(answer.KVs[0].Version, 10, 64)
	return answer.KVs[0].Value, version, err
}

// Put writes a value if the key still has this version.
func (s Store) Put(ctx context.Context, key string, value []byte, version int64) (done bool, err error) {
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	err = s.post(ctx, "/v3/kv/txn", map[string]any{
		"compare": []any{map[string]any{
			"target": "VERSION", "result": "EQUAL", "key": []byte(key), "version": strconv.FormatInt(version, 10),
		}},
		"success": []any{map[string]any{"requestPut": map[string]any{"key": []byte(key), "value": value}}},
	}, &answer)
	return answer.Succeeded, err
}

// Delete deletes a key.
func (s Store) Delete(ctx context.Context, key string) error {
	return s.post(ctx, "/v3/kv/deleterange", map[string]any{"key": []byte(key)}, &struct{}{})
}

func (s Store) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	var errs []error
	for _, url := range slices.Repeat(s.URLs, rounds) {
		err := s.ask(ctx, url+path, body, answer)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s Store) ask(ctx context.Context, url string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := s.Client
	if client == nil {
		client = &http.Client{Timeout: patience}
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, data)
	}
	return json.Unmarshal(data, answer)
}
