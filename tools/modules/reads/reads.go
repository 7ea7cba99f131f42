// SPDX-License-Identifier: Apache-2.0

// Package reads is shared by the programs that answer requests with the code of one version of containerd. The tests in
// e2e/neighbours compare the agent with them.
package reads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"syscall"
	"unsafe"
)

// Request is one request: for the configuration below a root, for the hosts of a namespace, or for a pull.
type Request struct {
	Root      string   `json:"root,omitempty"`      // the root directory of a containerd, with its configuration
	Logins    []string `json:"logins,omitempty"`    // the hosts whose logins in that configuration are requested
	CertsDirs []string `json:"certsDirs,omitempty"` // config_path, split
	Namespace string   `json:"namespace,omitempty"` // whose hosts are requested
	Pull      string   `json:"pull,omitempty"`      // an image: HOST/REPOSITORY:TAG
	Scheme    string   `json:"scheme,omitempty"`    // of hosts without a file; empty: containerd's choice
	User      string   `json:"user,omitempty"`      // login for the pull
	Password  string   `json:"password,omitempty"`
}

// Answer has the requested data. Err is containerd's error.
type Answer struct {
	Err    string  `json:"err,omitempty"`
	Config *Config `json:"config,omitempty"`
	Hosts  []Host  `json:"hosts,omitempty"`
	Pulled *Pulled `json:"pulled,omitempty"`
}

// Config is containerd's interpretation of its configuration.
type Config struct {
	ConfigPath  string `json:"configPath"`
	Mirrors     bool   `json:"mirrors"` // the tables that hosts.toml has replaced
	ClientPull  bool   `json:"clientPull"`
	Unpacks     int    `json:"unpacks"`
	Snapshotter string `json:"snapshotter"`
	Sandbox     string `json:"sandbox"`

	Logins map[string]Login `json:"logins,omitempty"` // by host
}

// Login is the login of a host: without a user, Secret is an identity token. Err is containerd's error.
type Login struct {
	User   []byte `json:"user,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	Err    string `json:"err,omitempty"`
}

// LoginsOf returns the logins of hosts. login returns the login of a host.
func LoginsOf(hosts []string, login func(host string) (user, secret string, err error)) map[string]Login {
	all := map[string]Login{}
	for _, host := range hosts {
		user, secret, err := login(host)
		if err != nil {
			all[host] = Login{Err: err.Error()}
			continue
		}
		all[host] = Login{User: []byte(user), Secret: []byte(secret)}
	}
	return all
}

// Host is one host of a namespace.
type Host struct {
	Scheme       string      `json:"scheme"`
	Host         string      `json:"host"`
	Path         string      `json:"path"`
	Pull         bool        `json:"pull"`
	Resolve      bool        `json:"resolve"`
	Header       http.Header `json:"header"`
	SkipVerify   bool        `json:"skipVerify"`
	Authorities  bool        `json:"authorities"`  // the host has its own pool
	Certificates int         `json:"certificates"` // of the client
	Fallback     bool        `json:"fallback"`     // from https to http
}

// Pulled is the result of a pull: the digest of the tag, and the first missing blob.
type Pulled struct {
	Digest  string `json:"digest"`
	Missing string `json:"missing,omitempty"` // digest: error
}

// Serve answers each line of standard input, a JSON request, with a line of JSON.
func Serve(answer func(context.Context, Request) (Answer, error)) {
	if err := serve(os.Stdin, os.Stdout, answer); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer, answer func(context.Context, Request) (Answer, error)) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r Request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := answered(r, answer)
		if err != nil {
			a = Answer{Err: err.Error()}
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// answered converts a panic to an error: some versions panic for a value of an unexpected type.
func answered(r Request, answer func(context.Context, Request) (Answer, error)) (a Answer, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	return answer(context.Background(), r)
}

// In calls f with another root directory, so that absolute paths in a configuration lead to the same files as on a
// node.
func In(root string, f func() error) (err error) {
	outside, err := os.Open("/")
	if err != nil {
		return err
	}
	defer outside.Close()
	if err := syscall.Chroot(root); err != nil {
		return err
	}
	// As systemd starts containerd: in the root directory.
	defer func() { err = errors.Join(err, outside.Chdir(), syscall.Chroot(".")) }()
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return f()
}

// Describe adds a client's certificates and checks to a host.
func Describe(h *Host, client *http.Client) {
	t, is := client.Transport.(*http.Transport)
	if !is {
		h.Fallback = true
		t = wrapped(client.Transport)
	}
	tls := t.TLSClientConfig
	h.SkipVerify, h.Authorities, h.Certificates = tls.InsecureSkipVerify, tls.RootCAs != nil, len(tls.Certificates)
}

// wrapped returns the transport from the struct in which containerd wraps it.
func wrapped(of http.RoundTripper) *http.Transport {
	v := reflect.Indirect(reflect.ValueOf(of))
	if !v.CanAddr() {
		addressable := reflect.New(v.Type()).Elem()
		addressable.Set(v)
		v = addressable
	}
	for n := range v.NumField() {
		field := v.Field(n)
		inner, is := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(*http.Transport)
		if is {
			return inner
		}
	}
	panic(fmt.Sprintf("no transport in %T", of))
}

// Blob is a blob of a manifest.
type Blob struct {
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	MediaType string `json:"mediaType"`
}

// Blobs returns all blobs of a manifest: its config and its layers.
func Blobs(manifest []byte) ([]Blob, error) {
	var m struct {
		Config Blob   `json:"config"`
		Layers []Blob `json:"layers"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	return append([]Blob{m.Config}, m.Layers...), nil
}
