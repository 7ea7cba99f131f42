// SPDX-License-Identifier: Apache-2.0

// Command reads says how kubelet's own code reads what an admin writes. The tests in e2e/neighbours compare the agent
// with it. It answers each line of standard input, a JSON request, with a line of JSON.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	_ "k8s.io/kubernetes/pkg/kubelet/config" // newSourceFile
	"k8s.io/kubernetes/pkg/kubelet/types"
)

// request asks one thing.
type request struct {
	Pods   string   `json:"pods,omitempty"`   // a directory of static pod files
	Logins []string `json:"logins,omitempty"` // directories with config.json or .dockercfg, in the order of the search
	Images []string `json:"images,omitempty"` // those whose logins are wanted: HOST/REPOSITORY
}

// answer has what was asked for.
type answer struct {
	Pods   []pod     `json:"pods"`
	Logins [][]login `json:"logins"` // for each image, in the order in which kubelet tries them
}

type pod struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Containers []container `json:"containers"` // init containers first
}

type container struct {
	Name   string `json:"name"`
	Image  string `json:"image"`
	Policy string `json:"policy"`
}

type login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

func main() {
	flags := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		if r.Pods != "" {
			var err error
			if a.Pods, err = pods(r.Pods); err != nil {
				return err
			}
		}
		if len(r.Logins) > 0 {
			a.Logins = logins(r.Logins, r.Images)
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// newSourceFile and listConfig are what config.NewSourceFile begins with. It goes on watching the directory and cannot be
// ended, and a user has few instances of inotify.
//
//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node apitypes.NodeName, period time.Duration, updates chan<- any) unsafe.Pointer

//go:linkname listConfig k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).listConfig
func listConfig(source unsafe.Pointer) error

// pods are those that kubelet would run.
func pods(dir string) ([]pod, error) {
	updates := make(chan any, 1)
	if err := listConfig(newSourceFile(dir, "node", time.Hour, updates)); err != nil {
		return nil, err
	}
	found := []pod{}
	for _, p := range (<-updates).(types.PodUpdate).Pods {
		is := pod{Namespace: p.Namespace, Name: p.Name}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			is.Containers = append(is.Containers, container{c.Name, c.Image, string(c.ImagePullPolicy)})
		}
		found = append(found, is)
	}
	return found, nil
}

// logins are those of the first file that kubelet can read, as its provider does (ReadDockerConfigFile).
func logins(dirs, images []string) [][]login {
	files, err := credentialprovider.ReadDockerConfigJSONFile(dirs)
	if err != nil {
		files, _ = credentialprovider.ReadDockercfgFile(dirs) // neither: no login
	}
	keyring := &credentialprovider.BasicDockerKeyring{}
	keyring.Add(nil, files)
	all := [][]login{}
	for _, image := range images {
		found, _ := keyring.Lookup(image)
		one := []login{}
		for _, f := range found {
			one = append(one, login{f.Username, f.Password})
		}
		all = append(all, one)
	}
	return all
}
