// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// nginxConfig surrounds a virtual host, in place of Debian's /etc/nginx/nginx.conf. Unlike nginx's default format, its
// log has a connection number.
const nginxConfig = `user root;
worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events {}
http {
  log_format rig '$connection $status "$request" "$http_user_agent"';
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  include %[1]s/virtual.conf;
}
`

// virtualHost adapts a virtual host of SUSE's guide to the node. It fails if the text lacks something that it has to
// replace.
func (r *Registry) virtualHost(text, dir string) (string, error) {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return "", err
	}
	for _, pair := range [][2]string{
		{"listen 443 ", "listen 127.0.0.1:" + port + " "},
		{"server 127.0.0.1:5000;", "server " + r.front + ";"},
		{"/etc/rmt/ssl/rmt-server.crt", filepath.Join(dir, "server.crt")},
		{"/etc/rmt/ssl/rmt-server.key", filepath.Join(dir, "server.key")},
		{"/var/log/nginx/registry_https_access.log;", filepath.Join(dir, "access.log") + " rig;"},
		{"/var/log/nginx/registry_https_error.log;", filepath.Join(dir, "error.log;")},
	} {
		if !strings.Contains(text, pair[0]) {
			return "", fmt.Errorf("virtual host: has no %q", pair[0])
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text, nil
}

// startNginx starts Debian's nginx as a proxy of the front.
func (r *Registry) startNginx(text string) {
	r.node.tb.Helper()
	dir := filepath.Join(r.dir, "nginx")
	r.Host = fmt.Sprintf("127.0.0.1:%d", r.node.FreePort())
	text, err := r.virtualHost(text, dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = errors.Join(r.writeCertificate(dir),
			os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, nginxConfig, dir), 0o644),
			os.WriteFile(filepath.Join(dir, "virtual.conf"), []byte(text), 0o644))
	}
	if err != nil {
		r.node.tb.Fatalf("node: %s: nginx: %v", r.name, err)
	}
	process := r.node.run(r.name+"-nginx", []string{searchPath()}, r.node.installed("nginx"),
		"-e", filepath.Join(dir, "error.log"), "-c", filepath.Join(dir, "nginx.conf"))
	process.waitReady(func() error {
		conn, err := new(net.Dialer).DialContext(r.node.tb.Context(), "tcp", r.Host)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// writeCertificate writes the certificate and key of makeCertificates to files.
func (r *Registry) writeCertificate(dir string) error {
	pair := r.tls.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(filepath.Join(dir, "server.crt"), "CERTIFICATE", pair.Certificate[0]),
		writePEM(filepath.Join(dir, "server.key"), "PRIVATE KEY", key))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// NginxLog returns nginx's access log: a line "CONNECTION STATUS "REQUEST" "USER-AGENT"" for each request, written once
// the client has its response.
func (r *Registry) NginxLog() []string {
	r.node.tb.Helper()
	return strings.Split(strings.TrimSpace(r.node.text(filepath.Join(r.dir, "nginx/access.log"))), "\n")
}
