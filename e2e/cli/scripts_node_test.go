// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

func (s *stage) daemon(_ bool, args []string) {
	if args[0] != "start" && s.script.daemon == nil {
		s.Fatalf("there is no daemon")
	}
	switch args[0] {
	case "start":
		_ = os.Remove(s.node.Path("run/image-update-agent/agent.sock")) // a killed one leaves it behind
		s.script.daemon = s.node.StartAgent("run")
		s.until("daemon", func() error {
			state, err := s.state()
			if err == nil && state.HasReason(status.KindStarting) && state.Progress == nil {
				err = errors.New("has not looked yet")
			}
			return err
		})
	case "stop":
		if code := s.script.daemon.Stop().Code; code != 0 {
			s.Fatalf("exit %d", code)
		}
		s.script.daemon = nil
	case "kill":
		s.script.daemon.Kill()
		s.script.daemon = nil
	case "reload":
		before := s.reloads()
		s.script.daemon.Signal(syscall.SIGHUP)
		s.until("reload", func() error {
			if s.reloads() == before {
				return errors.New("nothing said")
			}
			return nil
		})
	default:
		s.Fatalf("daemon %s: no such thing", args[0])
	}
}

// log returns the daemon's log.
func (s *stage) log() string {
	text, err := os.ReadFile(s.script.daemon.Stderr)
	s.line.Check(err)
	return string(text)
}

func (s *stage) reloads() int { return strings.Count(s.log(), "configuration ") }

func (s *stage) registry(_ bool, args []string) {
	r := s.node.Registry
	switch args[0] {
	case "stop":
		r.Down()
	case "start":
		r.Intercept(nil)
		r.Up()
	case "forget":
		r.Forget()
	case "lose":
		after := 1
		if len(args) > 1 {
			var err error
			after, err = strconv.Atoi(args[1])
			s.line.Check(err)
		}
		r.Intercept(lose(after))
	default:
		s.Fatalf("registry %s: no such thing", args[0])
	}
}

// lose lets a number of requests for a digest pass. Later ones, and all others, are cut off, as if the registry were
// down.
func lose(after int) node.Intercept {
	var asked atomic.Int64
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if asked.Load() < int64(after) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				asked.Add(1)
			}
			return false
		}
		panic(http.ErrAbortHandler)
	}
}

func (s *stage) fetched(_ bool, args []string) {
	if got := fmt.Sprint(s.node.Registry.Requests().Bytes(node.Blob)); got != args[0] {
		s.Fatalf("%s bytes of blobs, want %s: %+v", got, args[0], s.node.Registry.Requests())
	}
}

func (s *stage) kubelet(_ bool, args []string) {
	if args[0] != "start" {
		s.node.Kubelet.Stop()
	}
	if args[0] != "stop" {
		s.node.Kubelet.Start()
	}
}

func (s *stage) containerd(bool, []string) { s.node.Containerd.Start() }

func (s *stage) power(bool, []string) { s.node.PowerOff() }

// container returns CRI's status of the newest container with that name.
func (s *stage) container(pod, name string) (*cri.ContainerStatus, error) {
	c, err := s.cri.Newest(pod+"-"+s.script.name, name)
	if err == nil && c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		err = fmt.Errorf("%s %s: %s, exit code %d, %s", pod, name, c.GetState(), c.GetExitCode(), c.GetMessage())
	}
	return c, err
}

func (s *stage) restart(_ bool, args []string) {
	c, err := s.container(args[0], args[1])
	s.line.Check(err)
	s.cri.StopContainer(c.GetId())
	s.until("restart", func() error {
		again, err := s.cri.Newest(args[0]+"-"+s.script.name, args[1])
		if err == nil && (again.GetId() == c.GetId() || again.GetState() == cri.ContainerState_CONTAINER_CREATED) {
			err = errors.New("not yet")
		}
		return err
	})
}

func (s *stage) stopped(_ bool, args []string) {
	s.until(strings.Join(args, " "), func() error {
		if _, err := s.container(args[0], args[1]); err == nil {
			return errors.New("runs")
		}
		return nil
	})
}

func (s *stage) gone(_ bool, args []string) {
	s.until(args[0], func() error {
		_, err := os.Stat(s.node.Path(args[0]))
		if os.IsNotExist(err) {
			return nil
		}
		return errors.Join(err, errors.New("is there"))
	})
}

// digest returns the digest of a tag, of the image with the pod's name, or of another one.
func (s *stage) digest(pod, tag string) string {
	if digest, ok := s.script.digests[pod+":"+tag]; ok {
		return digest
	}
	for name, digest := range s.script.digests {
		if strings.HasSuffix(name, ":"+tag) {
			return digest
		}
	}
	s.Fatalf("%s is not published", tag)
	return ""
}

func (s *stage) runs(_ bool, args []string) {
	digest := s.digest(args[0], args[2])
	s.until(strings.Join(args, " "), func() error {
		c, err := s.container(args[0], args[1])
		if err == nil && !strings.HasSuffix(c.GetImageRef(), digest) {
			err = fmt.Errorf("runs %s, want %s", c.GetImageRef(), digest)
		}
		return err
	})
}

func (s *stage) follows(_ bool, args []string) {
	text := story.Followed(s, s.node, args[0]+".yaml")
	image := s.node.Registry.Ref(s.script.name + "/" + args[1])
	for _, line := range []string{"image: " + image + "\n", "imagePullPolicy: Always\n"} {
		if !strings.Contains(text, line) {
			s.Fatalf("no %q in\n%s", line, text)
		}
	}
}

func (s *stage) answers(not bool, args []string) {
	s.until(args[0], func() error {
		got, err := node.Answer(s.port(args[0]))
		switch {
		case not && err == nil:
			return fmt.Errorf("answers %q", got)
		case not:
			return nil
		case err == nil && got != args[1]:
			err = fmt.Errorf("answers %q, want %q", got, args[1])
		}
		return err
	})
	s.node.WaitStarted()
}

// seen returns a text that changes when a pod is touched.
func (s *stage) seen(pod string) string {
	file := path.Join(s.node.Manifests, pod+".yaml")
	info, err := os.Stat(file)
	s.line.Check(err)
	answer, err := s.cri.Runtime.ListContainers(s.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod + "-" + s.script.name + "-node1"},
	}})
	s.line.Check(err)
	var ids []string
	for _, c := range answer.GetContainers() {
		ids = append(ids, c.GetId())
	}
	slices.Sort(ids)
	return fmt.Sprintln(info.ModTime(), s.line.ReadFile(file), ids)
}

func (s *stage) note(_ bool, args []string) { s.script.noted[args[0]] = s.seen(args[0]) }

func (s *stage) untouched(not bool, args []string) {
	before := s.script.noted[args[0]]
	if now := s.seen(args[0]); (now == before) == not {
		s.Fatalf("before:\n%s\nnow:\n%s", before, now)
	}
}
