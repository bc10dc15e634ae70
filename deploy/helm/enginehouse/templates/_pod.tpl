{{/* A gateway's pod, of a Deployment or, with a volume for each, of a StatefulSet. */}}
{{- define "enginehouse.pod" -}}
metadata:
  labels: {{- include "enginehouse.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ .Values.config | sha256sum }}
    {{- range $name, $value := .Values.podAnnotations }}
    {{ $name }}: {{ $value | quote }}
    {{- end }}
spec:
  {{- if .Values.discovery.enabled }}
  serviceAccountName: {{ include "enginehouse.name" . }}
  {{- else }}
  automountServiceAccountToken: false
  {{- end }}
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds 15 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toJson . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    fsGroup: 10001
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: gateway
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        - { name: ENGINEHOUSE_SERVER_HOST, value: "0.0.0.0" }
        - { name: ENGINEHOUSE_SERVER_DRAIN_TIMEOUT, value: "{{ .Values.drainSeconds }}s" }
        # /ready fails this long before the socket closes, so that no new request arrives at a closed one.
        - { name: ENGINEHOUSE_SERVER_DRAIN_DELAY, value: "5s" }
        {{- range $name, $from := .Values.secrets }}
        - name: {{ $name }}
          valueFrom: { secretKeyRef: { name: {{ $from.secret | quote }}, key: {{ $from.key | quote }} } }
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - { name: http, containerPort: 8080 }
      startupProbe: {{- toJson (merge (dict "httpGet" (dict "path" "/health" "port" "http")) .Values.probes.startup) | nindent 8 }}
      readinessProbe: {{- toJson (merge (dict "httpGet" (dict "path" "/ready" "port" "http")) .Values.probes.readiness) | nindent 8 }}
      livenessProbe: {{- toJson (merge (dict "httpGet" (dict "path" "/health" "port" "http")) .Values.probes.liveness) | nindent 8 }}
      resources: {{- toJson .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      volumeMounts:
        - { name: config, mountPath: /etc/enginehouse, readOnly: true }
        - { name: state, mountPath: /var/lib/enginehouse }
        - { name: tmp, mountPath: /tmp }
  volumes:
    - name: config
      configMap: { name: {{ include "enginehouse.name" . }} }
    {{- if not .Values.persistence.enabled }}
    - { name: state, emptyDir: {} }
    {{- end }}
    - { name: tmp, emptyDir: {} }
  nodeSelector: {{- toJson .Values.nodeSelector | nindent 4 }}
  tolerations: {{- toJson .Values.tolerations | nindent 4 }}
  affinity: {{- toJson .Values.affinity | nindent 4 }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    - {{ toJson (merge (dict "labelSelector" (dict "matchLabels" (include "enginehouse.labels" $ | fromYaml))) .) }}
    {{- end }}
  {{- end }}
{{- end -}}
