{{/* Every name is `egret`, whatever the release is called: two agents on one node would fight over pins and socket, and a
second release fails because the names are taken. */}}

{{- define "egret.selector" -}}
app.kubernetes.io/name: egret
app.kubernetes.io/component: agent
{{- end }}

{{/* No version here: a label that changes with each version would be one more thing to roll out. */}}
{{- define "egret.labels" -}}
{{ include "egret.selector" . }}
app.kubernetes.io/part-of: egret
{{- end }}

{{/* Of something with an address and a port. */}}
{{- define "egret.socket" -}}
{{ printf "%s:%d" (contains ":" .address | ternary (printf "[%s]" .address) .address) (int .port) }}
{{- end }}

{{- define "egret.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
