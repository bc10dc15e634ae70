{{- define "enginehouse.name" -}}
{{- printf "%s-enginehouse" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "enginehouse.labels" -}}
app.kubernetes.io/name: enginehouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "enginehouse.kind" -}}
{{- if .Values.persistence.enabled }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end -}}
