// SPDX-License-Identifier: Apache-2.0

package fleetlock_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "3241b70e33674f2c91e5eba23c33eeaa"

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func client(t *testing.T, url string, edit ...func(*fleetlock.Options)) *fleetlock.Client {
	t.Helper()
	o := fleetlock.Options{URL: url, Group: "masters.a-1", ID: id, Version: "1", Now: func() time.Time { return now }}
	for _, e := range edit {
		e(&o)
	}
	c, err := fleetlock.New(o)
	require.NoError(t, err)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// The requests follow the protocol: method, path, header and body.
func TestRequestsFollowTheProtocol(t *testing.T) {
	t.Parallel()
	var seen []string
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "true", r.Header.Get("fleet-lock-protocol"))
		assert.True(t, r.Close, "no connection stays open")
		assert.Equal(t, "image-update-agent/1", r.Header.Get("User-Agent"))
		assert.JSONEq(t, `{"client_params": {"id": "`+id+`", "group": "masters.a-1"}}`, string(body))
		seen = append(seen, r.Method+" "+r.URL.Path)
	})
	c := client(t, url+"/base/")
	answer, err := c.Lock(t.Context())
	require.NoError(t, err)
	assert.Empty(t, answer)
	require.NoError(t, c.Unlock(t.Context()))
	assert.Equal(t, []string{"POST /base/v1/pre-reboot", "POST /base/v1/steady-state"}, seen)
}

// The ids are derived as in systemd from the machine's id, which they do not reveal: test vectors of systemd and of
// poseidon's fleetlock.
func TestIDs(t *testing.T) {
	t.Parallel()
	assert.Equal(t, id, fleetlock.ID("3d1219c7c4c5404aaa1f6d2a48adfda4\n"))
	assert.Equal(t, "978a225b3d7b40e9acd7ce9b62f68444", fleetlock.ZincatiID("1c09ca98649c4c7abc779cd04c96812e\n"))
	assert.NotContains(t, fleetlock.ID("host.example.com"), "host")
	assert.Len(t, fleetlock.ID(""), 32)
	assert.NotEqual(t, fleetlock.ID("a"), fleetlock.ID("b"))
}

// The ids of random machines match systemd's. Each machine id is mounted in a mount namespace. IUA_ROUNDS machines with
// the seed IUA_SEED: each takes two processes, and any shows each bit that systemd sets.
func TestIDsOfManyMachinesMatchSystemd(t *testing.T) {
	t.Parallel()
	seed, _ := strconv.ParseUint(os.Getenv("IUA_SEED"), 10, 64)
	rounds, _ := strconv.ParseUint(os.Getenv("IUA_ROUNDS"), 10, 64)
	seed = cmp.Or(seed, 1)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	var machines strings.Builder
	for range cmp.Or(rounds, 50) {
		fmt.Fprintf(&machines, "%016x%016x\n", r.Uint64()|1, r.Uint64())
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc", `
		mount -t tmpfs none /mnt
		: >/mnt/id
		mount --bind /mnt/id /etc/machine-id
		while read -r id; do
			echo "$id" >/mnt/id
			systemd-id128 machine-id --app-specific="$0"
			systemd-id128 machine-id --app-specific="$1"
		done`, "1f4b0e0b6a0d4c52a1d3a7f52c9e6b84", "de35106b6ec24688b63afddaa156679b")
	cmd.Stdin = strings.NewReader(machines.String())
	out, err := cmd.Output()
	require.NoError(t, err)
	var want []string
	for id := range strings.Lines(machines.String()) {
		want = append(want, fleetlock.ID(id), fleetlock.ZincatiID(id))
	}
	assert.Equal(t, want, strings.Fields(string(out)))
}

// Unlock also releases the lock under its former id, and stops at the first refusal.
func TestUnlockUnderAFormerID(t *testing.T) {
	t.Parallel()
	var seen []string
	refuse := false
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		seen = append(seen, r.URL.Path+" "+string(body))
		if refuse && strings.Contains(string(body), "former") {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"kind":"internal_error","value":"error uncordoning node"}`)
		}
	})
	c := client(t, url, func(o *fleetlock.Options) { o.Former = "former" })
	_, err := c.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Unlock(t.Context()))
	refuse = true
	require.ErrorContains(t, c.Unlock(t.Context()), "500: error uncordoning node")
	body := func(id string) string { return `{"client_params":{"id":"` + id + `","group":"masters.a-1"}}` }
	unlock := []string{"/v1/steady-state " + body(id), "/v1/steady-state " + body("former")}
	assert.Equal(t, append(append([]string{"/v1/pre-reboot " + body(id)}, unlock...), unlock...), seen)
}

// A 200 counts only with a body of known lock servers.
func TestOnlyAnswersOfLockServersCount(t *testing.T) {
	t.Parallel()
	const both, lock, unlock, neither = 3, 1, 2, 0
	for title, c := range map[string]struct {
		media, body string
		counts      int
	}{
		"airlock":                     {"", "", both},
		"white space":                 {"text/plain", " \n", both},
		"poseidon, locked":            {"text/plain; charset=utf-8", "obtained reboot lease", lock},
		"poseidon, locked already":    {"text/plain; charset=utf-8", "retained reboot lease", lock},
		"poseidon, unlocked":          {"text/plain; charset=utf-8", "unlocked reboot lease for " + id, unlock},
		"poseidon, unlocked already":  {"text/plain; charset=utf-8", "reboot lease already unlocked", unlock},
		"poseidon, older":             {"text/plain; charset=utf-8", "steady-state confirmed", unlock},
		"heathcliff26":                {"application/json", `{"kind":"success","value":"The operation was successful"}`, both},
		"strand, locked":              {"application/json", `{"kind":"lock_acquired","value":"successfully acquired lock"}`, lock},
		"strand, unlocked":            {"application/json", `{"kind":"lock_released","value":"successfully released lock"}`, unlock},
		"an empty object":             {"application/json", "{}", both},
		"holders":                     {"application/json", `{"holders":[{"id":"` + id + `"}],"slots":1}`, both},
		"holders without this node":   {"application/json", `{"holders":[{"id":"b"}],"slots":1}`, unlock},
		"an error":                    {"application/json", `{"kind":"failed_lock","value":"semaphore full"}`, neither},
		"an error as text":            {"text/plain", `{"kind":"failed_lock","value":"semaphore full"}`, neither},
		"an error of poseidon":        {"application/json", `{"kind":"lock_held","value":"held by x"}`, neither},
		"an error in other letters":   {"application/json", `{"Kind":"failed_lock"}`, neither},
		"an error and a success":      {"application/json", `{"kind":"failed_lock","kind":"success"}`, neither},
		"an error and none":           {"application/json", `{"kind":"failed_lock","KIND":""}`, neither},
		"an error, escaped":           {"application/json", `{"\u006bind":"failed_lock","kind":""}`, neither},
		"a value alone":               {"application/json", `{"value":"semaphore full"}`, neither},
		"another error":               {"application/json", `{"error":"unauthorized"}`, neither},
		"another message":             {"application/json", `{"message":"no such route","statusCode":404}`, neither},
		"JSON behind JSON":            {"application/json", `{}{"kind":"failed_lock"}`, neither},
		"a list":                      {"application/json", `[{"kind":"failed_lock"}]`, neither},
		"null":                        {"application/json", "null", neither},
		"a number":                    {"application/json", "1", neither},
		"a string":                    {"application/json", `"obtained reboot lease"`, neither},
		"half an object":              {"application/json", `{"kind":`, neither},
		"a page":                      {"text/html", "<html>log in</html>", neither},
		"a page without type":         {"", "<!DOCTYPE html><title>log in</title>", neither},
		"a page as text":              {"text/plain", "  <html>log in</html>", neither},
		"a page as JSON":              {"application/json", "<HTML>log in", neither},
		"a page with the right words": {"text/plain", "obtained reboot lease<html>", neither},
		"a page of XML":               {"text/xml", "<?xml version='1.0'?><a/>", neither},
		"a portal's script":           {"text/plain", "location.href='http://portal'", neither},
		"another server":              {"text/plain", "It works!", neither},
		"ok":                          {"text/plain", "ok", neither},
		"garbage":                     {"application/octet-stream", "\xff\x00{", neither},
		"compressed":                  {"application/json", "\x1f\x8b\x08\x00", neither},
		"the words of an error":       {"text/plain", "all 1 semaphore slots currently locked", neither},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.media}
				_, _ = io.WriteString(w, c.body)
			})
			want := func(err error, counts bool) {
				t.Helper()
				if counts {
					require.NoError(t, err)
					return
				}
				e := &fleet.LockError{}
				require.ErrorAs(t, err, &e)
				require.ErrorIs(t, err, release.ErrHeld)
				assert.Equal(t, 200, e.Status)
				require.Error(t, e.Err, "it says why")
			}
			answer, err := client(t, url).Lock(t.Context())
			want(err, c.counts&lock != 0)
			assert.Equal(t, c.body == "retained reboot lease", answer.Retained)
			want(client(t, url).Unlock(t.Context()), c.counts&unlock != 0)
		})
	}
}

// poseidon's fleetlock refuses to release a lock that another node holds: then there is nothing to release. A refusal
// for another reason, or of this node's lock, is an error.
func TestUnlockOfAnotherNodesLock(t *testing.T) {
	t.Parallel()
	const other = "978a225b3d7b40e9acd7ce9b62f68444"
	for title, c := range map[string]struct {
		status int
		body   string
		done   bool
	}{
		"another node has it": {423, `{"kind":"lock_held","value":"reboot lease unlock unavailable, held by ` + other + `"}`, true},
		"this node has it":    {423, `{"kind":"lock_held","value":"reboot lease unlock unavailable, held by ` + id + `"}`, false},
		"nobody is named":     {423, `{"kind":"lock_held","value":"reboot lease unlock unavailable"}`, false},
		"an error":            {500, `{"kind":"internal_error","value":"error uncordoning node, held by ` + other + `"}`, false},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		err := client(t, url).Unlock(t.Context())
		assert.Equal(t, c.done, err == nil, "%s: %v", title, err)
		_, err = client(t, url).Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, title)
		if title == "another node has it" {
			assert.Equal(t, []fleet.LockHolder{{ID: other}}, e.Answer.Holders)
		}
	}
}

// Refusals as servers send them: airlock, poseidon's fleetlock, and one that names holders.
func TestRefusals(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 11, 0, 0, 0, time.UTC)
	for title, c := range map[string]struct {
		status int
		body   string
		retry  string
		want   fleet.LockError
	}{
		"airlock": {
			status: 409, body: `{"kind": "failed_lock_semaphore_full", "value": "semaphore currently full"}`,
			want: fleet.LockError{Status: 409, Kind: "failed_lock_semaphore_full", Value: "semaphore currently full"},
		},
		"plain text": {
			status: 500, body: "all 1 semaphore slots currently locked\n",
			want: fleet.LockError{Status: 500, Value: "all 1 semaphore slots currently locked"},
		},
		"holders": {
			status: 423, body: `{"kind": "locked", "value": "locked", "holders": [{"id": "b", "since": "2026-05-01T11:00:00Z"}], "slots": 1}`,
			want: fleet.LockError{
				Status: 423, Kind: "locked", Value: "locked",
				Answer: fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "b", Since: since}}, Slots: 1},
			},
		},
		"Retry-After": {
			status: 503, retry: "120", want: fleet.LockError{Status: 503, RetryAt: now.Add(2 * time.Minute)},
		},
		"Retry-After, endless": {
			status: 503, retry: "999999999999999999999", want: fleet.LockError{Status: 503, RetryAt: now.Add(time.Hour)},
		},
		"control characters": {
			status: 400, body: `{"kind": "a\u001b[31m", "value": "b\nc"}`,
			want: fleet.LockError{Status: 400, Kind: "a [31m", Value: "b c"},
		},
		"other success": {status: 204, want: fleet.LockError{Status: 204}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if c.retry != "" {
					w.Header().Set("Retry-After", c.retry)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			c.want.Server = strings.TrimPrefix(url, "http://")
			_, err := client(t, url).Lock(t.Context())
			require.ErrorIs(t, err, release.ErrHeld)
			assert.Equal(t, &c.want, err)
			require.ErrorIs(t, client(t, url).Unlock(t.Context()), release.ErrHeld)
		})
	}
}

// Answers that no lock server sends are rejected within limits.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter) {
		line := []byte(strings.Repeat("x", 64<<10))
		for range (1 << 30) / len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
	many := `{"holders": [{"id": "` + id + `"}, ` + strings.Repeat(`{"id": "b"}, `, 100) + `{"id": "` + strings.Repeat("c", 1000) + `"}]}`
	for title, c := range map[string]struct {
		answer  http.HandlerFunc
		want    string // of the error; empty: the lock is granted
		holders int
	}{
		"a 200 of 1 GiB":     {answer: func(w http.ResponseWriter, _ *http.Request) { endless(w) }, want: "200: answer: too large"},
		"a refusal of 1 GiB": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict); endless(w) }, want: "409: answer: too large"},
		"redirects": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/yes", http.StatusTemporaryRedirect)
		}, want: "307: redirects, which the agent does not follow"},
		"redirects to its yes": {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/yes", http.StatusFound) }, want: "302: redirects, which the agent does not follow"},
		"a portal's page":      {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in</html>") }, want: "200: answers with a web page"},
		"ends in the middle": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "{")
		}, want: "200: answer: unexpected EOF"},
		"closes the connection":  {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "EOF"},
		"endless headers":        {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, want: "server response headers exceeded"},
		"many holders":           {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, many) }, holders: 16},
		"hangs before an answer": {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: "no answer within 2s"},
		"hangs in the answer": {
			answer: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "{")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, want: "no answer within 2s",
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of the client only after that
				assert.NotEqual(t, "/yes", r.URL.Path)
				c.answer(w, r)
			})
			short := func(o *fleetlock.Options) {
				if strings.HasPrefix(title, "hangs") {
					o.Timeout = 2 * time.Second // longer than a busy machine needs to send
				}
			}
			answer, err := client(t, url, short).Lock(t.Context())
			assert.LessOrEqual(t, asked.Load(), int32(1))
			assert.Len(t, answer.Holders, c.holders)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, release.ErrHeld)
			require.ErrorContains(t, err, c.want)
			e := &fleet.LockError{}
			require.ErrorAs(t, err, &e)
			assert.False(t, e.Unsent, "the server has read the request")
			assert.Less(t, len(err.Error()), 600)
		})
	}
}

// A request without a connection took nothing.
func TestUnsentRequests(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and begins no TLS
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for title, c := range map[string]struct{ url, want string }{
		"nothing listens": {"http://127.0.0.1:1", "connection refused"},
		"TLS hangs":       {"https://" + silent.Addr().String(), "no answer within 100ms"},
		"no such file":    {"http://127.0.0.1:1", "ca /none: no such file"},
	} {
		_, err := client(t, c.url, func(o *fleetlock.Options) {
			switch title {
			case "TLS hangs":
				o.Timeout = 100 * time.Millisecond
			case "no such file":
				o.CA = "/none"
			}
		}).Lock(t.Context())
		require.ErrorContains(t, err, c.want, title)
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, title)
		assert.True(t, e.Unsent, title)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"kind": "k", "value": "v", "holders": [{"id": "a", "since": "2026-05-01T11:00:00Z"}], "slots": 2}`))
	f.Add([]byte("all 1 semaphore slots currently locked\n"))
	f.Add([]byte(`{"holders": [{"since": "9999-12-31T23:59:59-12:00"}], "slots": -1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, _ := fleetlock.Parse(body)
		assert.LessOrEqual(t, len(got.Holders), 16)
		assert.GreaterOrEqual(t, got.Slots, 0)
		data, err := json.Marshal(got)
		require.NoError(t, err)
		assert.Less(t, len(data), 16*1024)
		assert.NotContains(t, fmt.Sprint(got.Kind, got.Value), "\n")
	})
}
