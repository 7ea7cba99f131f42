// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"reflect"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// fullStatus is a status in which every field has a value of its own, and every list two elements.
func fullStatus() status.Status {
	var s status.Status
	n := 0
	fill(reflect.ValueOf(&s).Elem(), "", &n)
	s.State, s.Activity = status.StateFailed, status.ActivityNone
	s.Progress.Phase, s.Progress.Ended, s.Progress.PodManifest = status.PhaseWaiting, "", "pod0.yaml"
	s.Pulls[0].Phase, s.Pulls[1].Phase, s.Pulls[0].Done = status.PhaseDownloading, status.PhaseResolving, 2
	s.Pulls[1].Total, s.Pulls[1].Done = 0, 0
	s.Lock.State, s.Lock.Pods, s.Lock.Kept, s.Auto.Open = "held", "all", false, false
	s.Budget.PerHour, s.Budget.Remaining = 100, 5
	for n := range s.PodManifests {
		pod := &s.PodManifests[n]
		pod.PodManifest, pod.Change = fmt.Sprintf("pod%d.yaml", n), "rebuild"
		pod.RolledBack.Retries[0].Image, pod.RolledBack.Retries[1].Image = "registry.example/a/image", "registry.example/b/image"
		pod.RolledBack.ByHand, pod.Holds[0].By = false, status.ByPerson
	}
	s.Failures[0].PodManifest = "pod0.yaml"
	for n := range s.Images {
		i := &s.Images[n]
		i.PodManifest, i.Container, i.Image = fmt.Sprintf("pod%d.yaml", n), "container", []string{"registry.example/a/image", "registry.example/b/image"}[n]
		i.Staged, i.ErrorKind, i.Change = n == 0, status.ErrorOther, "rebuild"
		i.Created = &s.Since
	}
	s.Reasons[0] = status.Reason{
		Kind: status.KindDenied, Text: "text", PodManifest: "pod0.yaml", Container: "container", Image: "image", Tag: "tag",
		Digest: s.Images[0].Running.Digest, Host: "host",
	}
	s.Sources[0].Cause, s.Sources[0].Failures, s.Sources[1].Failures = "refused", 3, 0
	s.Sources[0].Repository, s.Sources[1].Repository = s.Images[0].Image, s.Images[1].Image
	s.Sources[0].Kind, s.Sources[1].Kind = "catalog", ""
	s.StandingHolds[0].Repository, s.StandingHolds[0].By.Kind = "*", status.ByPerson
	s.StandingHolds[1].By.Kind = status.ByConfiguration
	s.History[0].By.Kind, s.History[1].By.Kind = status.ByPerson, status.ByAgent
	return s
}

// fill gives each field below a value that no other has.
func fill(v reflect.Value, name string, n *int) {
	*n++
	switch of := v.Addr().Interface().(type) {
	case *time.Time:
		*of = time.Date(2026, time.November, 1, *n%24, *n%60, 0, 0, time.UTC)
		return
	case *digest.Digest:
		*of = digest.FromString(fmt.Sprint(*n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", name, *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n) * 1000)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), name, n)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.Tag.Get("json") != "-" {
				fill(value, field.Name, n)
			}
		}
	default:
		panic(fmt.Sprintf("%s: a field of kind %s", name, v.Kind()))
	}
}
