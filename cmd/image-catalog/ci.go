// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"net/url"
	"os"
)

// publisherName returns who publishes: the user who started the CI job, or the user of the machine. Only the CI system
// that runs the job is believed: whoever starts a pipeline of GitLab may give it a variable of GitHub's.
func publisherName() string {
	user := map[string]string{gitlab: "GITLAB_USER_LOGIN", jenkins: "BUILD_USER", github: "GITHUB_ACTOR"}[ciSystem()]
	return cmp.Or(os.Getenv(user), os.Getenv("USER"))
}

const gitlab, jenkins, github = "GitLab", "Jenkins", "GitHub" // GitHub's variables are Gitea's and Forgejo's, too

// ciSystem returns the CI system of the job, by the variables that name it; empty: there is none.
func ciSystem() string {
	isSet := func(names ...string) bool { return cmp.Or(valuesOf(names)...) != "" }
	switch {
	case isSet("GITLAB_CI", "CI_JOB_URL", "GITLAB_USER_LOGIN"):
		return gitlab
	case isSet("GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_ACTOR"):
		return github
	case isSet("JENKINS_URL", "BUILD_URL", "BUILD_USER"):
		return jenkins
	}
	return ""
}

func valuesOf(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, os.Getenv(name))
	}
	return out
}

// runURL returns the address of the CI job, without a login; empty: there is none.
func runURL() string {
	text := ""
	switch ciSystem() {
	case gitlab:
		text = os.Getenv("CI_JOB_URL")
	case jenkins:
		text = os.Getenv("BUILD_URL")
	case github:
		if server := os.Getenv("GITHUB_SERVER_URL"); server != "" {
			text = server + "/" + os.Getenv("GITHUB_REPOSITORY") + "/actions/runs/" + os.Getenv("GITHUB_RUN_ID")
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
