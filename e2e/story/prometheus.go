// SPDX-License-Identifier: Apache-2.0

package story

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Target is what a Prometheus scrapes: a node, or with HonorLabels many nodes behind one address.
type Target struct {
	Node, Address string
	HonorLabels   bool
}

// StartPrometheus starts Debian's Prometheus with a file of rules and these targets, which it scrapes each second.
// rules may be empty. It returns its URL.
func StartPrometheus(t *testing.T, rules string, targets ...Target) string {
	t.Helper()
	return startPrometheus(t, t.TempDir(), rules, targets...)
}

// StartPrometheusWith starts one that has samples of the past, in the format of OpenMetrics.
func StartPrometheusWith(t *testing.T, samples string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "samples")
	require.NoError(t, os.WriteFile(file, []byte(samples), 0o600))
	Shell(t, Checkout(t),
		"\"$(tools/setup where prometheus)/promtool\" tsdb create-blocks-from openmetrics "+file+" "+dir+"/data")
	return startPrometheus(t, dir, "")
}

func startPrometheus(t *testing.T, dir, rules string, targets ...Target) string {
	t.Helper()
	type object = map[string]any
	var jobs []any
	for n, target := range targets {
		labels := object{"instance": target.Node}
		jobs = append(jobs, object{
			"job_name": fmt.Sprint(n), "honor_labels": target.HonorLabels,
			"static_configs": []any{object{"targets": []string{target.Address}, "labels": labels}},
		})
	}
	config := object{
		"global":         object{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"scrape_configs": jobs,
	}
	if rules != "" {
		config["rule_files"] = []string{rules}
	}
	text, err := json.Marshal(config) // JSON is YAML
	require.NoError(t, err)
	address := Address(node.FreePort(t))
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	program := filepath.Join(Shell(t, Checkout(t), "tools/setup where prometheus"), "prometheus")
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+file, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // t.Context has ended
	node.Eventually(t, "Prometheus", Ready, func() error {
		resp, err := PlainClient.Get("http://" + address + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
	return "http://" + address
}
