// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/node/reboot"
	"github.com/kubic-project/image-update-agent/systemd"
)

// preconditions are what else on the node holds an apply.
type preconditions struct {
	reboot  reboot.Node
	kubelet systemd.Kubelet
	unread  func() error // of settings
}

func (s settings) preconditions() preconditions {
	address := s.systemBus()
	return preconditions{
		reboot: reboot.Node{Root: s.root, Bus: address}, kubelet: systemd.Kubelet{Bus: address, Unit: s.platform.KubeletUnit},
		unread: s.unread,
	}
}

// systemBus is the D-Bus address of the system bus, as the D-Bus specification
// finds it.
func (s settings) systemBus() string { return systemBus(s.root) }

func systemBus(root string) string {
	if address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return bus.At(filepath.Join("/", root, "run/dbus/system_bus_socket"))
}

// Holds asks all at the same time.
func (p preconditions) Holds(ctx context.Context) []status.Hold {
	var reboots, kubelet []status.Hold
	var both sync.WaitGroup
	both.Go(func() { reboots = p.reboot.Holds(ctx) })
	both.Go(func() { kubelet = p.kubelet.Holds(ctx) })
	both.Wait()
	holds := append(reboots, kubelet...)
	if p.unread == nil {
		return holds
	}
	if err := p.unread(); err != nil {
		holds = append(holds, status.Hold{Name: status.HoldKubelet, Reason: err.Error()})
	}
	return holds
}
