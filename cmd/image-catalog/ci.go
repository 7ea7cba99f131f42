// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"os"
)

// publisherName returns who publishes: the user who started the CI job, or the user of the machine.
func publisherName() string {
	for _, variable := range []string{"GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_USER", "USER"} {
		if name := os.Getenv(variable); name != "" {
			return name
		}
	}
	return ""
}

// runURL returns the address of the CI job, without a login; empty: there is none.
func runURL() string {
	text := os.Getenv("CI_JOB_URL") // GitLab
	if text == "" {
		text = os.Getenv("BUILD_URL") // Jenkins
	}
	if server := os.Getenv("GITHUB_SERVER_URL"); server != "" { // GitHub, Gitea, Forgejo
		text = server + "/" + os.Getenv("GITHUB_REPOSITORY") + "/actions/runs/" + os.Getenv("GITHUB_RUN_ID")
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
