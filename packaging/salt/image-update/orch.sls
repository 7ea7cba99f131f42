# SPDX-License-Identifier: Apache-2.0
#
# For the master: run apply.sls on every node with an update, one node at a time, the admin node first. It stops at the
# first node that fails or does not answer. See docs/salt.md.
#
#   salt-run state.orchestrate image-update.orch [test=True] [pillar='{"image_update": {...}}']
#
# image_update:order        compound targets, one group after the other; nodes in no group are left alone.
# image_update:past_failed  start although a node of these groups failed before.
# image_update:past_held    continue after a held node.
# image_update:expect       the approved digests; see apply.sls. A node of these groups that does not run one of these
#                           images fails: choose groups that run them.
# image_update:lock_wait    how many seconds each node waits for the fleet lock; see apply.sls.
#
# Before each node, the event image-update/node has the current node, its position and the total:
#   salt-run state.event 'image-update/*' pretty=True
# The runner event.send came with 2016.11.0. If the event cannot be sent, the orchestration continues.
#
# There is one state per node instead of one with `batch: 1`, because before Salt 2019.2.2 the batch of an orchestration
# continued after a failed node in spite of `failhard` (github.com/saltstack/salt, issue 54521 and pull request 54806).
# `require` works in all versions; `failhard` shortens the output by the nodes that were not reached.
#
# saltutil.cmd has positional arguments: the fifth is expr_form in 2016.11 and tgt_type since 2017.7.
{%- set order = salt['pillar.get']('image_update:order', ['G@roles:admin', '*']) %}
{%- set past_failed = salt['pillar.get']('image_update:past_failed', False) %}
{%- set past_held = salt['pillar.get']('image_update:past_held', False) %}
{%- set lock_wait = salt['pillar.get']('image_update:lock_wait', 600) %}
{%- set expect = salt['pillar.get']('image_update:expect', {}) %}
{%- set ask = salt['saltutil.cmd'] %}
{%- set seconds = 30 %}

{%- set everyone = '( ' ~ order|join(' ) or ( ') ~ ' )' %}

{#- Minions answer at once and refresh afterwards: sleep until the master has their new grains. #}
{%- do ask(everyone, 'saltutil.refresh_grains', [], seconds, 'compound') %}
{%- do ask(everyone, 'test.sleep', [10], seconds, 'compound') %}

{%- set failed = [] %}
{%- set nodes = [] %}
{%- for group in order %}
  {#- The master only knows the grains that were reported last. A minion that does not answer is left out. #}
  {%- set found = ask('G@image_update_state:failed and ( ' ~ group ~ ' )', 'test.ping', [], seconds, 'compound') %}
  {%- for id in found|sort if found[id].get('ret') and id not in failed %}
    {%- do failed.append(id) %}
  {%- endfor %}
  {%- set found = ask('G@image_update_available:true and ( ' ~ group ~ ' )', 'test.ping', [], seconds, 'compound') %}
  {%- for id in found|sort if found[id].get('ret') and id not in nodes %}
    {%- do nodes.append(id) %}
  {%- endfor %}
{%- endfor %}

{%- if failed and not past_failed %}
nothing is begun:
  {%- set why = ('failed before: ' ~ failed|join(', '))|json %}
  {%- if opts['test'] %}
  test.fail_without_changes: # a configurable_test_state succeeds in a test run
    - name: {{ why }}
  {%- else %}
  test.configurable_test_state: # the others take a comment only since Salt 3001
    - changes: False
    - result: False
    - comment: {{ why }}
  {%- endif %}
{%- elif not nodes %}
nothing is to be done:
  test.configurable_test_state:
    - changes: False
    - result: True
    - comment: no node offers an update
{%- else %}
{%- for id in nodes %}
{{ ('image update: ' ~ id ~ ' is next')|json }}:
  salt.runner:
    - name: event.send
    - tag: image-update/node
    - data: {node: {{ id|json }}, number: {{ loop.index }}, of: {{ nodes|length }}}
  {%- if not loop.first %}
    - require:
      - salt: {{ ('image update of ' ~ nodes[loop.index0 - 1])|json }}
  {%- endif %}

{{ ('image update of ' ~ id)|json }}:
  salt.state:
    - tgt: [{{ id|json }}]
    - tgt_type: list
    - sls: image-update.apply
    - pillar: {image_update: {past_held: {{ 'True' if past_held else 'False' }}, lock_wait: {{ lock_wait|int }}, expect: {{ expect|json }}}}
    # A minion that does not answer has failed. Without this, no answer would be a success.
    - expect_minions: True
    # Wait for a running highstate.
    - queue: True
    - failhard: True
  {%- if not loop.first %}
    - require:
      - salt: {{ ('image update of ' ~ nodes[loop.index0 - 1])|json }}
  {%- endif %}
{%- endfor %}
{%- endif %}
