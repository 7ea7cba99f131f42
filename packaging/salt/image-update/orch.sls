# SPDX-License-Identifier: Apache-2.0
#
# For the master: apply.sls on every node that offers an update, one node at a time, the admin node first. The first
# node that fails, or does not answer any more, ends it. docs/salt.md tells how to use it.
#
#   salt-run state.orchestrate image-update.orch [test=True] [pillar='{"image_update": {...}}']
#
# image_update:order        compound targets, one group after the other; a node in none of them is left alone.
# image_update:past_failed  begin although a node of these groups has failed before.
# image_update:past_held    go on to the next node after one that is held.
# image_update:expect       the digests that are approved; see apply.sls. A node of these groups that does not have one of
#                           these images fails: give the groups that have it.
# image_update:lock_wait    how many seconds each node may wait for the lock of its fleet; see apply.sls.
#
# Before each node the event image-update/node says which one is waited for now, the how manieth, and of how many:
#   salt-run state.event 'image-update/*' pretty=True
# The runner event.send came with 2016.11.0. An event that cannot be sent holds nothing up.
#
# Why there is a state for each node, and not one with `batch: 1`: before Salt 2019.2.2 an orchestration's batch went on
# after a node that failed, whatever `failhard` said (github.com/saltstack/salt, issue 54521 and pull request 54806).
# `require` holds in all versions; `failhard` spares the list of those that were not reached.
#
# saltutil.cmd takes its arguments by place: the fifth is expr_form in 2016.11 and tgt_type since 2017.7.
{%- set order = salt['pillar.get']('image_update:order', ['G@roles:admin', '*']) %}
{%- set past_failed = salt['pillar.get']('image_update:past_failed', False) %}
{%- set past_held = salt['pillar.get']('image_update:past_held', False) %}
{%- set lock_wait = salt['pillar.get']('image_update:lock_wait', 600) %}
{%- set expect = salt['pillar.get']('image_update:expect', {}) %}
{%- set ask = salt['saltutil.cmd'] %}
{%- set seconds = 30 %}

{%- set everyone = '( ' ~ order|join(' ) or ( ') ~ ' )' %}

{#- Nodes answer at once and refresh afterwards: the sleep is for what they and the master need. #}
{%- do ask(everyone, 'saltutil.refresh_grains', [], seconds, 'compound') %}
{%- do ask(everyone, 'test.sleep', [10], seconds, 'compound') %}

{%- set failed = [] %}
{%- set nodes = [] %}
{%- for group in order %}
  {#- Who does not answer is away, or offers nothing any more: the master only knows what it was told last. #}
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
  test.fail_without_changes:
    - name: {{ ('failed before: ' ~ failed|join(', '))|json }}
{%- elif not nodes %}
nothing is to be done:
  test.succeed_without_changes:
    - name: no node offers an update
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
    # A node that is lost meanwhile has failed; without this, no answer would be a success.
    - expect_minions: True
    # A highstate that is under way is waited for.
    - queue: True
    - failhard: True
  {%- if not loop.first %}
    - require:
      - salt: {{ ('image update of ' ~ nodes[loop.index0 - 1])|json }}
  {%- endif %}
{%- endfor %}
{%- endif %}
