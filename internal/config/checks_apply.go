// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	slashed "path"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/window"
)

// days takes what window reads, and names the day that was meant.
func days(text string) error {
	_, err := window.ParseDays(text)
	if err == nil {
		return nil
	}
	names := window.DayNames()
	for day := range strings.SplitSeq(text, "-") {
		if _, wrong := window.ParseDays(day); wrong == nil {
			continue
		}
		if meant := Nearest(day, names); meant != "" {
			return fmt.Errorf("%w; did you mean %q?", err, meant)
		}
	}
	return err
}

func timeOfDay(text string) error {
	_, err := window.ParseStart(text)
	return err
}

func windowLength(text string) error {
	_, err := window.ParseLength(text)
	return err
}

func zone(text string) error {
	_, err := window.LoadZone(text)
	return err
}

// maybeMoment may be empty: not set.
func maybeMoment(text string) error {
	if text == "" {
		return nil
	}
	return moment(text)
}

// filePattern takes the name of a pod manifest, or a pattern of such names. The
// shell's [!a] is refused: path.Match reads it as one of ! and a.
func filePattern(text string) error {
	const want = "want the name of a file in podManifests, or a pattern of names with * ? [a-z] [^a-z]"
	if err := fileName(text); err != nil {
		return err
	}
	if len(text) > maxPattern || strings.Contains(text, "[!") {
		return errors.New(want)
	}
	if _, err := slashed.Match(text, ""); err != nil {
		return fmt.Errorf("%w, %s", err, want)
	}
	return nil
}

// notAsked is what kubelet.pods says where kubelet is never asked.
const notAsked = "off"

var errPods = errors.New("want kubelet's list of pods, such as http://127.0.0.1:10255/pods, or off")

// podList takes the URL of kubelet's list of pods. What it says decides whether
// an update is rolled back, so its host is an address, which no name server can
// move. It need not be a loopback address: kubelet may listen on one other address
// of the node only (its address).
func podList(text string) error {
	if text == "" || text == notAsked {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Path != "/pods" {
		return errPods
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return errPods
	}
	if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > maxPort {
		return errPods
	}
	if u.Hostname() == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !oneHost(ip) {
		return errors.New("want an address of this node, such as 127.0.0.1, or localhost as the host")
	}
	return nil
}

// maxPort is TCP's highest.
const maxPort = 65535

// oneHost reports whether the address can be of one host, and of it alone.
func oneHost(ip netip.Addr) bool {
	return ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
}
