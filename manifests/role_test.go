// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

// TestRoleByNameLabelsOrProgram covers the ways in which installers and admins write control-plane pods.
func TestRoleByNameLabelsOrProgram(t *testing.T) {
	t.Parallel()
	const plain = "{name: etcd0, namespace: kube-system}"
	for name, c := range map[string]struct{ metadata, containers, want string }{
		"its name":                   {"{name: etcd}", "[{name: x, image: 'a:1', command: [run]}]", "etcd"},
		"kubernetes' HA page":        {plain, "[{name: etcd0, image: 'a:1', command: [etcd, --name=a]}]", "etcd"},
		"a path":                     {plain, "[{name: x, image: 'a:1', command: [/usr/local/bin/etcd]}]", "etcd"},
		"args":                       {plain, "[{name: x, image: 'a:1', args: [/usr/local/bin/etcd, --name, a]}]", "etcd"},
		"a shell":                    {plain, "[{name: x, image: 'a:1', command: [/bin/sh, -c, 'set -e; exec /bin/etcd --name a 2>&1 | tee log']}]", "etcd"},
		"a block of shell":           {plain, "[{name: x, image: 'a:1', command: [sh, -c], args: [\"set -e\\nexec etcd \\\\\\n  --name=a\\n\"]}]", "etcd"},
		"a wrapper":                  {plain, "[{name: x, image: 'a:1', command: [/go-runner, --log-file=l, /usr/bin/kube-apiserver]}]", "kube-apiserver"},
		"a variable":                 {plain, "[{name: x, image: 'a:1', command: ['$(BIN)'], env: [{name: BIN, value: /bin/etcd}]}]", "etcd"},
		"the second container":       {plain, "[{name: x, image: 'a:1', command: [sleep]}, {name: y, image: 'a:1', command: [etcd]}]", "etcd"},
		"the image's entrypoint":     {plain, "[{name: x, image: 'quay.io/coreos/etcd:v3.5.21'}]", "etcd"},
		"a hardened image":           {plain, "[{name: x, image: 'h:5000/rancher/hardened-etcd@sha256:00'}]", "etcd"},
		"an architecture":            {plain, "[{name: x, image: 'k8s.gcr.io/kube-apiserver-amd64:v1.15.0'}]", "kube-apiserver"},
		"hyperkube":                  {plain, "[{name: x, image: 'hyperkube:1', command: [/hyperkube, kube-apiserver]}]", "kube-apiserver"},
		"an old hyperkube":           {plain, "[{name: x, image: 'a:1', command: [/hyperkube, apiserver, --secure-port=6443]}]", "kube-apiserver"},
		"its flags":                  {plain, "[{name: x, image: 'a:1', command: [run], args: [--listen-client-urls=http://a]}]", "etcd"},
		"its variables":              {plain, "[{name: x, image: 'a:1', command: [run], env: [{name: ETCD_LISTEN_CLIENT_URLS, value: 'http://a'}]}]", "etcd"},
		"kubeadm's labels":           {"{name: x, labels: {component: kube-apiserver, tier: control-plane}}", "[{name: x, image: 'a:1', command: [run]}]", "kube-apiserver"},
		"a label of kubespray":       {"{name: x, labels: {k8s-app: kube-apiserver}}", "[{name: x, image: 'a:1', command: [run]}]", "kube-apiserver"},
		"a recommended label":        {"{name: x, labels: {app.kubernetes.io/name: etcd}}", "[{name: x, image: 'a:1', command: [run]}]", "etcd"},
		"a scheduler":                {plain, "[{name: x, image: 'a:1', command: [kube-scheduler]}]", "kube-scheduler"},
		"both":                       {plain, "[{name: x, image: 'a:1', command: [kube-apiserver]}, {name: y, image: 'a:1', command: [etcd]}]", "etcd"},
		"a client of etcd":           {"{name: backup}", "[{name: x, image: 'a:1', command: [etcdctl, snapshot, save]}]", ""},
		"a tool that has its image":  {"{name: backup}", "[{name: x, image: 'quay.io/coreos/etcd:3', command: [etcdctl]}]", ""},
		"flags of the API server":    {"{name: x}", "[{name: x, image: 'a:1', command: [proxy, --etcd-servers=http://a]}]", ""},
		"names that only begin so":   {"{name: etcd-metrics-proxy}", "[{name: x, image: 'a:1', command: [haproxy]}]", ""},
		"a name of a container only": {"{name: x}", "[{name: etcd, image: 'a:1', command: [haproxy]}]", ""},
		"a version in its file":      {plain, "[{name: x, image: 'a:1', command: [/opt/etcd-v3.5.21]}]", "etcd"},
		"an architecture's file":     {plain, "[{name: x, image: 'a:1', command: [/usr/local/bin/kube-apiserver-arm64]}]", "kube-apiserver"},
		"kops": {
			"{name: etcd-manager-main, labels: {k8s-app: etcd-manager-main}}",
			"[{name: etcd-manager, image: 'a:1', command: [/bin/sh, -c, 'mkfifo /tmp/pipe; exec /etcd-manager --backup-store=s3://b > /tmp/pipe']}]", "etcd",
		},
		"RKE2":                       {"{name: x, labels: {component: etcd, tier: control-plane}}", "[{name: x, image: 'a@sha256:00', command: [y, --config-file=/c]}]", "etcd"},
		"a flag of a member":         {plain, "[{name: x, image: 'a:1', command: [run, -advertise-client-urls=http://a]}]", "etcd"},
		"variables alone":            {"{name: x}", "[{name: x, image: 'a:1', command: [member], env: [{name: ETCD_LISTEN_CLIENT_URLS, value: 'http://a'}]}]", "etcd"},
		"a variable of a member":     {plain, "[{name: x, image: 'a:1', command: [run], env: [{name: ETCD_INITIAL_CLUSTER_STATE, value: new}]}]", "etcd"},
		"a sidecar":                  {"{name: x}", "[{name: x, image: 'a:1', command: [sleep]}], initContainers: [{name: y, restartPolicy: Always, image: 'a:1', command: [etcd]}]", "etcd"},
		"a script in its container":  {"{name: x}", "[{name: etcd, image: 'a@sha256:00', command: [/usr/local/bin/start.sh]}]", "etcd"},
		"a script in a pod named so": {"{name: etcd-master1}", "[{name: x, image: 'a@sha256:00', command: [/bin/bash, /scripts/start]}]", "etcd"},
		"a script named so":          {"{name: x}", "[{name: x, image: 'a@sha256:00', command: [/start-etcd.sh]}]", "etcd"},
		"a script that it is given":  {"{name: x}", "[{name: x, image: 'a@sha256:00', command: [tini, --, /run_etcd.sh]}]", "etcd"},
		"a script in its image":      {"{name: x}", "[{name: x, image: 'quay.io/coreos/etcd:v3.5.21', command: [/bin/sh, /etc/start.sh]}]", "etcd"},
		"a script in an own image":   {"{name: x}", "[{name: kube-apiserver, image: 'own:1', command: [/entrypoint, serve]}]", "kube-apiserver"},
		"an entrypoint of a digest":  {"{name: x}", "[{name: etcd0, image: 'a@sha256:00'}]", "etcd"},
		"variables of an entrypoint": {"{name: x}", "[{name: etcd, image: 'a@sha256:00', env: [{name: TZ, value: UTC}]}]", "etcd"},
		"words for an entrypoint":    {"{name: x}", "[{name: x, image: 'own/etcd@sha256:00', args: [serve, '127.0.0.1:1']}]", "etcd"},
		"arguments of an entrypoint": {"{name: x}", "[{name: etcd, image: 'a@sha256:00', args: [--config-file=/etc/etcd.yaml]}]", "etcd"},
		"a script of a client":       {"{name: x}", "[{name: x, image: 'a:1', command: [sh, -c, 'exec client --endpoints http://etcd-0.etcd:2379 --ca /etc/etcd/ca.crt']}]", ""},
		"a member's address":         {"{name: x}", "[{name: x, image: 'a:1', command: [client, etcd-0.etcd]}]", ""},
		"a script of somebody else":  {"{name: velum}", "[{name: velum, image: 'velum:1', command: [/entrypoint.sh]}]", ""},
		"none":                       {"{name: velum}", "[{name: velum, image: 'velum:1', args: [serve]}]", ""},
	} {
		p, err := manifests.Parse([]byte("apiVersion: v1\nkind: Pod\nmetadata: " + c.metadata + "\nspec: {containers: " + c.containers + "}\n"))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, p.Role, name)
	}
	p, err := manifests.Parse([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, ` +
		`"spec": {"containers": [{"name": "a", "image": "a:1", "command": ["\/usr\/bin\/etcd"]}]}}`))
	require.NoError(t, err)
	assert.Equal(t, manifests.RoleEtcd, p.Role, "JSON")
}
