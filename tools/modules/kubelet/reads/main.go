// SPDX-License-Identifier: Apache-2.0

// Command reads reports how kubelet's own code reads files of admins. The tests in e2e/neighbours compare the agent
// with it. It answers each line of standard input, a JSON request, with a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/spf13/pflag"
	apitypes "k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/cmd/kubelet/app" // loadConfigFile
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/credentialprovider"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	_ "k8s.io/kubernetes/pkg/kubelet/config" // newSourceFile
	"k8s.io/kubernetes/pkg/kubelet/types"
)

// request is one request.
type request struct {
	Pods   string   `json:"pods,omitempty"`   // a directory of static pod files
	Logins []string `json:"logins,omitempty"` // directories with config.json or .dockercfg, in search order
	Images []string `json:"images,omitempty"` // images whose logins are requested: HOST/REPOSITORY
	Args   []string `json:"args,omitempty"`   // the command line of a kubelet whose configuration is requested
}

// answer has the requested data.
type answer struct {
	Pods   []pod     `json:"pods"`
	Logins [][]login `json:"logins"` // for each image, in kubelet's order
	Config config    `json:"config"`
}

// config is the effective configuration of kubelet, or why it would not start.
type config struct {
	Refused       string `json:"refused,omitempty"`
	StaticPodPath string `json:"staticPodPath"`
	ImageGCHigh   int32  `json:"imageGCHigh"`
	ReadOnlyPort  int32  `json:"readOnlyPort"`
	Address       string `json:"address"`
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
		if len(r.Args) > 0 {
			a.Config = configOf(r.Args[1:])
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// newSourceFile and listConfig are the first steps of config.NewSourceFile, which then watches the directory and cannot
// be stopped; the number of inotify instances per user is limited.
//
//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node apitypes.NodeName, period time.Duration, updates chan<- any) unsafe.Pointer

//go:linkname listConfig k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).listConfig
func listConfig(source unsafe.Pointer) error

// pods returns the pods that kubelet would run.
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

// logins returns those of the first file that kubelet can read, as its provider does (ReadDockerConfigFile).
func logins(dirs, images []string) [][]login {
	files, err := credentialprovider.ReadDockerConfigJSONFile(dirs)
	if err != nil {
		files, _ = credentialprovider.ReadDockercfgFile(dirs) // without either there is no login
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

// These are steps of NewKubeletCommand, which would then run a kubelet.
//
//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(config *kubeletconfig.KubeletConfiguration, dir string) error

//go:linkname kubeletConfigFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletConfigFlagPrecedence(config *kubeletconfig.KubeletConfiguration, args []string) error

func configOf(args []string) (c config) {
	defer func() { // kubelet panics for an empty --address followed by a second one
		if fault := recover(); fault != nil {
			c = config{Refused: fmt.Sprint(fault)}
		}
	}()
	is, err := kubeletsConfiguration(args)
	if err != nil {
		return config{Refused: err.Error()}
	}
	return config{
		StaticPodPath: is.StaticPodPath, ImageGCHigh: is.ImageGCHighThresholdPercent,
		ReadOnlyPort: is.ReadOnlyPort, Address: is.Address,
	}
}

// kubeletsConfiguration follows NewKubeletCommand (cmd/kubelet/app/server.go) up to the final configuration.
func kubeletsConfiguration(args []string) (*kubeletconfig.KubeletConfiguration, error) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.SetOutput(io.Discard)
	flags := options.NewKubeletFlags()
	is, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, is)
	options.AddGlobalFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unknown command %s", set.Arg(0))
	}
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, err
	}
	file, dir := flags.KubeletConfigFile, flags.KubeletDropinConfigDirectory
	if file != "" {
		if is, err = loadConfigFile(context.Background(), file); err != nil {
			return nil, err
		}
	}
	if dir != "" {
		if err := mergeKubeletConfigurations(is, dir); err != nil {
			return nil, err
		}
	}
	if file != "" || dir != "" {
		if err := kubeletConfigFlagPrecedence(is, args); err != nil {
			return nil, err
		}
	}
	return is, validation.ValidateKubeletConfiguration(is, utilfeature.DefaultFeatureGate)
}
