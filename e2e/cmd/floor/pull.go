// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// downloads is the number of concurrent layers: CRI's default for an image (max_concurrent_downloads).
const downloads = 3

// blob is a manifest's entry of a layer or config.
type blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// pull does the minimum of a pull: manifests, then each layer once, several concurrently, with its SHA-256 and
// decompression, without writing. It prints the bytes as sent and decompressed.
func pull(out io.Writer, urls []string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: downloads, DisableCompression: true}}
	places, err := layers(client, urls)
	if err != nil {
		return err
	}
	var (
		group       sync.WaitGroup
		lock        sync.Mutex
		errs        []error
		sent, plain int64
		queue       = make(chan string)
	)
	for range downloads {
		group.Go(func() {
			for url := range queue {
				n, m, err := layer(client, url)
				lock.Lock()
				sent, plain, errs = sent+n, plain+m, append(errs, err)
				lock.Unlock()
			}
		})
	}
	for _, url := range places {
		queue <- url
	}
	close(queue)
	group.Wait()
	fmt.Fprintln(out, sent, plain)
	return errors.Join(errs...)
}

// layers returns the URLs of all layers of images, without duplicates.
func layers(client *http.Client, urls []string) (places []string, err error) {
	seen := map[string]bool{}
	for _, url := range urls {
		var manifest struct {
			Layers []blob `json:"layers"`
		}
		body, err := get(client, url)
		if err != nil {
			return nil, err
		}
		err = json.NewDecoder(body).Decode(&manifest)
		body.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		repository, _, _ := strings.Cut(url, "/manifests/")
		for _, l := range manifest.Layers {
			if !seen[l.Digest] {
				places = append(places, repository+"/blobs/"+l.Digest)
			}
			seen[l.Digest] = true
		}
	}
	return places, nil
}

func get(client *http.Client, url string) (io.ReadCloser, error) {
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.docker.distribution.manifest.v2+json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp.Body, nil
}

// layer fetches one layer, and returns its size as sent and decompressed.
func layer(client *http.Client, url string) (sent, plain int64, err error) {
	body, err := get(client, url)
	if err != nil {
		return 0, 0, err
	}
	defer body.Close()
	hashed := &hashing{from: body, hash: sha256.New()}
	unpacked, err := unpack(bufio.NewReaderSize(hashed, 256<<10))
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", url, err)
	}
	plain, err = io.Copy(io.Discard, unpacked)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", url, err)
	}
	if got := "sha256:" + hex.EncodeToString(hashed.hash.Sum(nil)); !strings.HasSuffix(url, got) {
		return 0, 0, fmt.Errorf("%s: got %s", url, got)
	}
	return hashed.read, plain, nil
}

// unpack reads gzip or zstd, by its first bytes.
func unpack(packed *bufio.Reader) (io.Reader, error) {
	magic, err := packed.Peek(4)
	switch {
	case err != nil:
		return nil, err
	case string(magic) == "\x28\xb5\x2f\xfd":
		return zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	}
	return gzip.NewReader(packed)
}

// hashing hashes and counts the bytes read.
type hashing struct {
	from io.Reader
	hash hash.Hash
	read int64
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	_, _ = h.hash.Write(p[:n]) // writing to a hash does not fail
	h.read += int64(n)
	return n, err
}
