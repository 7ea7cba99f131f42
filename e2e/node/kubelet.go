// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Kubelet is a kubelet.
type Kubelet struct {
	Port int // the read-only port: /pods, /healthz; with an API server only /healthz
	*Process

	node     *Node
	argv     []string
	file     string         // path of the configuration
	settings map[string]any // settings without those of a test
}

// ByDefault is how long kubelet waits before it starts an ending container again, where it is not told so.
var ByDefault = map[string]any{"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "300s"}}

func (n *Node) startKubelet(options Options) *Kubelet {
	n.tb.Helper()
	if n.Containerd == nil {
		n.tb.Fatalf("node: kubelet: needs a containerd")
	}
	dir := filepath.Join(n.Dir, "kubelet")
	k := &Kubelet{Port: n.FreePort(), node: n, file: filepath.Join(dir, "config.json")}
	k.settings = k.config(dir)
	k.argv = []string{
		filepath.Join(n.Part("kubelet"), "kubelet"), "--config", k.file, "--root-dir", filepath.Join(dir, "root"),
		"--cert-dir", filepath.Join(dir, "pki"), "--hostname-override", "node1",
	}
	if options.Kubeconfig != "" {
		k.argv = append(k.argv, "--kubeconfig", options.Kubeconfig)
		k.settings["readOnlyPort"], k.settings["healthzPort"] = 0, k.Port
	}
	k.configure(options.KubeletConfig)
	k.Start()
	return k
}

// configure writes the configuration, with these values of some fields.
func (k *Kubelet) configure(fields map[string]any) {
	k.node.tb.Helper()
	config := maps.Clone(k.settings)
	maps.Copy(config, fields)
	text, err := json.MarshalIndent(config, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(k.file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(k.file, text, 0o644)
	}
	if err != nil {
		k.node.tb.Fatalf("node: kubelet: %v", err)
	}
}

// Reconfigure restarts kubelet with other values of some fields than the package's own (see Options.KubeletConfig), and
// returns when it is healthy. Containers keep running in between.
func (k *Kubelet) Reconfigure(fields map[string]any) {
	k.node.tb.Helper()
	k.Stop()
	k.configure(fields)
	k.Start()
}

// config returns the settings that a test machine needs: it may have cgroups v1, swap and no CAP_SYS_RESOURCE, other
// kubelets run on it, and kubelet may write only to dir. The thresholds of image garbage collection and eviction are
// unreachable, so that the machine's disk does not influence a test; a test that needs them sets them. A container that
// ends again and again starts again after a second, instead of 10, 20, 40 s and so on up to 5 minutes: stories wait for
// such starts more than for anything else.
func (k *Kubelet) config(dir string) map[string]any {
	return map[string]any{
		"apiVersion":   "kubelet.config.k8s.io/v1beta1",
		"kind":         "KubeletConfiguration",
		"address":      "127.0.0.1",
		"port":         k.node.FreePort(),
		"readOnlyPort": k.Port,
		"healthzPort":  0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"containerRuntimeEndpoint": "unix://" + k.node.Containerd.Socket,
		"staticPodPath":            k.node.Manifests,
		"podLogsDir":               filepath.Join(dir, "pods"),
		"volumePluginDir":          filepath.Join(dir, "volume-plugins"),
		"resolvConf":               "/dev/null",
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + filepath.Base(k.node.Dir),
		"enforceNodeAllocatable":   []string{},
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"oomScoreAdj":              0,
		"makeIPTablesUtilChains":   false,

		"featureGates":     map[string]bool{"KubeletCrashLoopBackOffMax": true},
		"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"},

		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{
			"memory.available": "1Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "0%",
			"imagefs.available": "1Mi", "imagefs.inodesFree": "0%",
		},
	}
}

// Start starts kubelet after Stop or Kill, and returns when it is healthy.
func (k *Kubelet) Start() {
	k.node.tb.Helper()
	k.Process = k.node.run("kubelet", []string{searchPath()}, k.argv...)
	k.waitReady(func() error {
		_, err := getAlone(k.node.tb.Context(), fmt.Sprintf("http://127.0.0.1:%d/healthz", k.Port))
		return err
	})
}

// Pods returns kubelet's list of pods, a v1.PodList in JSON.
func (k *Kubelet) Pods() ([]byte, error) {
	return getAlone(k.node.tb.Context(), fmt.Sprintf("http://127.0.0.1:%d/pods", k.Port))
}
