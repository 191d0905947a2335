{{- define "crmirror.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "crmirror.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "crmirror.name" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "crmirror.selector" -}}
app.kubernetes.io/name: crmirror
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "crmirror.labels" -}}
{{ include "crmirror.selector" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "crmirror.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The port of health.listen. */ -}}
{{- define "crmirror.port" -}}
{{- $health := .Values.config.health | default dict -}}
{{- required "config.health.listen is needed for the probes" $health.listen | splitList ":" | last -}}
{{- end -}}

{{- /* Not empty if the agents elect one that leads; several that do not would push in turn. */ -}}
{{- define "crmirror.elects" -}}
{{- if (.Values.config.leaderElection | default dict).enabled -}}
true
{{- else if gt (int .Values.replicas) 1 -}}
{{- fail "replicas is more than 1: set config.leaderElection.enabled, so that one leads" -}}
{{- end -}}
{{- end -}}

{{- /* The Lease's name, as the agent forms it. */ -}}
{{- define "crmirror.lease" -}}
{{- $repository := .Values.config.repository -}}
{{- $place := printf "%s\x00%s\x00%s" $repository.url ($repository.branch | default "") ($repository.path | default "" | trimSuffix "/") -}}
{{- .Values.config.leaderElection.name | default (printf "crmirror-%s-%s" .Values.config.cluster ($place | sha256sum | trunc 8)) -}}
{{- end -}}

{{- /* The rules of the ClusterRole: what config.select names, whatever its namespaces. */ -}}
{{- define "crmirror.rules" -}}
{{- $config := .Values.config -}}
{{- $twoWay := eq ($config.mode | default "mirror") "two-way" -}}
{{- $include := $config.include | default dict -}}
{{- $verbs := list "get" "list" "watch" -}}
{{- if $twoWay -}}
{{- $verbs = concat $verbs (list "create" "patch") -}}
{{- if ($config.apply | default dict).prune -}}
{{- $verbs = append $verbs "delete" -}}
{{- end -}}
{{- end -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch]
{{- if eq (toString (get $include "namespaces")) "false" }}
- apiGroups: [""]
  resources: [namespaces]
  {{- if not $twoWay }}
  resourceNames: [kube-system]
  {{- end }}
  verbs: [get]
{{- else }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
{{- if $twoWay }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- $seen := dict -}}
{{- $select := $config.select | default (list (dict "resources" (list "*"))) -}}
{{- range $select -}}
{{- range .resources -}}
{{- if not (hasKey $seen .) -}}
{{- $_ := set $seen . true -}}
{{- $parts := splitn "." 2 . -}}
{{- $group := $parts._1 | default "" -}}
{{- if eq . "*" -}}
{{- if not $.Values.rbac.allowEverything -}}
{{- fail "config.select has \"*\", for which RBAC knows nothing less than everything: set rbac.create to false and apply what \"crmirror rbac\" prints, or set rbac.allowEverything" -}}
{{- end -}}
{{- $group = "*" -}}
{{- end }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ $parts._0 | quote }}]
  verbs: {{ toJson (sortAlpha $verbs) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
